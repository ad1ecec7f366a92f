package amend

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Retried is the output of a finished job together with the results of recomputing its
// failed records.
type Retried struct {
	// Output, Errors and Failures are the job's files.
	Output, Errors, Failures string
	// Parts are those of an output that is a folder; nil for a file.
	Parts []commit.ManifestPart
	// Format is that of the output.
	Format encode.Format
	// CRC is the checksum of an output that is a file.
	CRC chunk.CRC
	// Failed is the file of failed records that CopyFailed wrote.
	Failed string
	// Again is the framed output of the job that recomputed the failed records, in order;
	// AgainFailures lists those that failed again.
	Again, AgainFailures string
	// SourceField is the member of results that says where their record comes from; empty
	// for none. In Again it refers to the file of failed records.
	SourceField string
	// Step is the name of the kernel that recomputed them.
	Step string
	// Layout is that of the columns of a job that has some, else nil. NoValues: the old output
	// has no values of them, because every record failed.
	Layout   *columns.Layout
	NoValues bool
	// Arrays are the arrays beside the output, ArraySums their checksums.
	Arrays    []commit.Array
	ArraySums []chunk.FileSum
	// Groups is the list of the row groups of an output that is a table. KeptApart: the file
	// Errors is in the job folder, and failed records also have rows in the table.
	Groups    string
	KeptApart bool
	// Batch: the output consists of lines of OpenAI's batch files. Failed records have a line
	// there with their error, and are in Errors with their mark.
	Batch bool
	// Dir is the folder for the new files, which have the names in NextFiles.
	Dir string
}

// Merged is the outcome of a merge.
type Merged struct {
	// Tally counts the records in the new failures.
	Tally chunk.Tally
	// Parts are those of the new output, with the same records as the old ones; a file is
	// one part.
	Parts []commit.ManifestPart
	// ArraySums are the checksums of the new arrays.
	ArraySums []chunk.FileSum
}

// NextFiles are the names of the new output, errors and failures until they replace the old
// files.
var NextFiles = [3]string{"output.next", "errors.next", "failures.next"}

// merger is a merge in progress.
type merger struct {
	Retried
	failed      *os.File
	position    int64      // offset in failed up to which records are done
	kept        *keptLines // failed records in a separate file
	again       *bufio.Reader
	failedAgain map[int64]record.Failure
	results     resultFiles
	errors, out *nextFile     // the failed records and the failures
	mapped      files.Mapping // the current record
	closers     []io.Closer
	tally       chunk.Tally
}

// Merge writes the new files beside the old ones. It fails if the old output is not what
// the job wrote.
func (r Retried) Merge() (Merged, error) {
	m := &merger{Retried: r}
	defer m.close()
	if err := m.open(); err != nil {
		return Merged{}, err
	}
	var again int64
	err := record.ReadFailures(r.Failures, func(f record.Failure) error {
		if err := m.results.reach(f); err != nil {
			return err
		}
		if m.kept != nil {
			if _, err := m.kept.line(f); err != nil {
				return err
			}
		}
		if f.Kind == fault.Upstream {
			return m.keep(f)
		}
		again++
		return m.replace(f, again-1)
	})
	if err == nil && m.kept != nil {
		err = m.kept.ended()
	}
	if err == nil {
		err = m.results.finish()
	}
	if err == nil {
		err = m.sync()
	}
	return Merged{Tally: m.tally, Parts: m.results.parts(), ArraySums: m.results.arraySums()}, err
}

func (m *merger) open() (err error) {
	if err := m.openFailed(); err != nil {
		return err
	}
	if m.Errors != "" {
		if m.kept, err = m.openKept(); err != nil {
			return err
		}
	}
	openResults := openLines
	if m.Format.Table {
		openResults = openTable
	}
	if m.results, err = openResults(m.Retried, filepath.Join(m.Dir, NextFiles[chunk.Results])); err != nil {
		return err
	}
	again, err := os.Open(m.Again)
	if err != nil {
		return fault.New(fault.Storage, "open results: %w", err)
	}
	m.closers = append(m.closers, again)
	m.again = bufio.NewReaderSize(again, 1<<20)
	m.failedAgain = make(map[int64]record.Failure)
	if err := record.ReadFailures(m.AgainFailures, func(f record.Failure) error {
		m.failedAgain[f.Record] = f
		return nil
	}); err != nil {
		return err
	}
	mode := files.PublicMode
	if m.KeptApart {
		mode = files.PrivateMode
	}
	if m.errors, err = createNext(filepath.Join(m.Dir, NextFiles[chunk.FailedRecords]), mode, encode.Lines()); err == nil {
		m.out, err = createNext(filepath.Join(m.Dir, NextFiles[chunk.Failures]), files.PrivateMode, encode.Lines())
	}
	return err
}

func (m *merger) openFailed() (err error) {
	if m.failed, err = os.Open(m.Failed); err != nil {
		return fault.New(fault.Storage, "open retry input: %w", err)
	}
	m.closers = append(m.closers, m.failed)
	m.position = int64(len(failedStart))
	return nil
}

// keep leaves a record that had a mark in the input as it is.
func (m *merger) keep(f record.Failure) error {
	at := m.results.at()
	var line []byte
	if m.kept != nil {
		line = bytes.TrimSuffix(m.kept.mapped.Data, []byte("\n"))
		if _, err := m.errors.Write(m.kept.mapped.Data); err != nil {
			return storage(err)
		}
	}
	if m.inResults() {
		if err := m.results.keep(f, line); err != nil {
			return err
		}
	}
	return m.note(f, at)
}

// inResults reports whether failed records have a place in the results.
func (m *merger) inResults() bool { return m.Errors == "" || m.KeptApart || m.Batch }

// replace puts the record's new result in the place of its mark.
func (m *merger) replace(f record.Failure, index int64) error {
	data, err := m.record(f)
	if err != nil {
		return err
	}
	if err := m.results.skip(f, data); err != nil {
		return err
	}
	size, values, err := m.nextFrame()
	if err != nil {
		return err
	}
	at := m.results.at()
	failed, again := m.failedAgain[index]
	if again != (size == commit.FailedFrame) {
		return fault.New(fault.Unknown, "bug: results and failures disagree on record %d", index)
	}
	if !again {
		return m.copyResult(f, size, values)
	}
	// It failed again: mark it with the new failure and the line number of the original
	// input.
	f.Kind, f.Message, f.Detail, f.Device, f.Step = failed.Kind, failed.Message, failed.Detail, failed.Device, cmp.Or(failed.Step, m.Step)
	if m.Errors != "" {
		if err := record.WriteMarked(m.errors, data, f.Mark()); err != nil {
			return storage(err)
		}
	}
	if m.inResults() {
		if err := m.results.addFailed(f, data); err != nil {
			return err
		}
	}
	return m.note(f, at)
}

// copyResult copies the new lines of a record, and their values.
func (m *merger) copyResult(f record.Failure, size, values int64) error {
	if m.Batch && size > 0 {
		var line bytes.Buffer
		if err := record.Renumber(&line, m.again, size, f.Record); err != nil {
			return storage(err)
		}
		return m.results.add(&line, int64(line.Len()), 0)
	}
	if m.SourceField == "" {
		return m.results.add(m.again, size, values)
	}
	lines := make([]byte, size)
	if _, err := io.ReadFull(m.again, lines); err != nil {
		return storage(err)
	}
	from := chunk.Origin{File: f.Source, Line: f.Line, Row: f.Rows}
	lines, err := record.NewOriginWriter(m.SourceField).Append(nil, lines, from)
	if err != nil {
		return fault.New(fault.Unknown, "bug: a result without the member %q: %w", m.SourceField, err)
	}
	return m.results.add(io.MultiReader(bytes.NewReader(lines), m.again), int64(len(lines)), values)
}

// nextFrame returns the size of the next record's lines, and of their values.
func (m *merger) nextFrame() (size, values int64, err error) {
	line, err := m.again.ReadString('\n')
	if err != nil {
		return 0, 0, fault.New(fault.Unknown, "bug: fewer results than failed records: %w", err)
	}
	first, second, both := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if size, err = strconv.ParseInt(first, 10, 64); err == nil && both {
		values, err = strconv.ParseInt(second, 10, 64)
	}
	return size, values, err
}

// record returns the next failed record as it was in the input. It is mapped, because it
// may have failed for being too long to read.
func (m *merger) record(f record.Failure) ([]byte, error) {
	m.mapped.Unmap()
	m.mapped = files.Mapping{}
	size := f.Length + int64(len(failedEnd))
	info, err := m.failed.Stat()
	if err != nil || f.Length < 0 || m.position+size > info.Size() {
		return nil, fault.New(fault.Conflict, "%s was changed: it has no record at byte %d", m.Failed, m.position)
	}
	if m.mapped, err = files.Map(m.failed, m.position, size); err != nil {
		return nil, fault.New(fault.Storage, "read retry input: %w", err)
	}
	data := m.mapped.Data[:f.Length]
	if chunk.Checksum(data) != f.CRC32C {
		return nil, fault.New(fault.Conflict, "%s was changed: byte %d is not the start of the failed record of line %d", m.Failed, m.position, f.Line)
	}
	m.position += size
	return data, nil
}

// comparer is a writer that fails if the written data differs from what it reads.
type comparer struct {
	with   io.Reader
	size   int64
	buffer [4096]byte
}

var errDifferent = errors.New("different")

func (c *comparer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece := c.buffer[:min(len(rest), len(c.buffer))]
		if _, err := io.ReadFull(c.with, piece); err != nil || !bytes.Equal(piece, rest[:len(piece)]) {
			return 0, errDifferent
		}
		rest = rest[len(piece):]
	}
	c.size += int64(len(p))
	return len(p), nil
}

// note writes a line of the new failures.jsonl.
func (m *merger) note(f record.Failure, at int64) error {
	f.At = at
	f.Size = m.results.at() - at
	m.tally.Add(chunk.FailureTally(f.Kind.String(), f.Message, f.Detail, f.Line).In(chunk.Origin{File: f.Source, Row: f.Rows}, f.Record))
	m.tally.Failed++
	line, err := f.AppendLine(nil)
	if err != nil {
		return err
	}
	_, err = m.out.Write(line)
	return storage(err)
}

func (m *merger) sync() error {
	for _, next := range []*nextFile{m.errors, m.out} {
		if err := next.finish(); err != nil {
			return storage(err)
		}
	}
	return storage(files.SyncDir(m.Dir))
}

func (m *merger) close() {
	m.mapped.Unmap()
	for _, c := range m.closers {
		c.Close()
	}
	for _, next := range []*nextFile{m.errors, m.out} {
		if next != nil {
			next.file.Close()
		}
	}
	if m.kept != nil {
		m.kept.close()
	}
	if m.results != nil {
		m.results.close()
	}
}
