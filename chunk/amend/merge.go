package amend

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"

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
	// KeptApart: Errors is in the job folder, because the output does not hold the failed
	// records.
	KeptApart bool
	// Parts lists the parts of an output that is a folder; nil for a file.
	Parts []commit.ManifestPart
	// Format is the format of the output, Store how its parts kept their results.
	Format encode.Format
	Store  chunk.Store
	// CRC is the checksum of an output that is a file.
	CRC chunk.CRC
	// Failed is the file of failed records that CopyFailed wrote.
	Failed string
	// Again is the framed output of the job that recomputed the failed records, in order; "" if none
	// did, and all of them stay failed.
	Again string
	// SourceField is the member of results that says where their record comes from; empty
	// for none. In Again it refers to the file of failed records.
	SourceField string
	// Layout describes the columns of a job that has some; else it is nil. NoValues: the old output
	// has no values of them, because every record failed.
	Layout   *columns.Layout
	NoValues bool
	// Arrays are the arrays beside the output, ArraySums their checksums.
	Arrays    []commit.Array
	ArraySums []chunk.FileSum
	// Dir is a folder for the new files, which have the temporary names of an output.
	Dir string
}

// parts returns the parts of the output; a file is one without a name.
func (r Retried) parts() []commit.ManifestPart {
	if r.Parts != nil {
		return r.Parts
	}
	return []commit.ManifestPart{{Records: math.MaxInt64, CRC32C: r.CRC}}
}

// merger is a merge in progress.
type merger struct {
	Retried
	failed   *os.File
	position int64         // offset in failed up to which records are done
	mapped   files.Mapping // the current record
	kept     *keptLines    // failed records in a separate file, else nil
	file     *os.File
	again    *bufio.Reader
	to       *commit.Rewriter
	arrays   oldArrays

	files   []commit.ManifestPart
	changed []bool // files in which a record is replaced
	number  int    // of the current file
	start   int64  // its position in the results: in bytes before encoding, or in rows
	source  source // nil if the file does not change
}

// Merge writes the new files beside the old ones. It fails if the old output is not what
// the job wrote.
func (r Retried) Merge() (commit.Rewritten, error) {
	m := &merger{Retried: r}
	defer m.close()
	err := m.open()
	if err == nil {
		err = record.ReadFailures(r.Failures, m.replace)
	}
	if err == nil && m.kept != nil {
		err = m.kept.ended()
	}
	for err == nil {
		if err = m.endFile(); err == nil && m.number == len(m.files)-1 {
			break
		}
		if err == nil {
			m.number++
			err = m.beginFile()
		}
	}
	if err == nil {
		err = m.arrays.verify()
	}
	if err != nil {
		return commit.Rewritten{}, err
	}
	return m.to.Finish()
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
	if m.Again != "" {
		if m.file, err = os.Open(m.Again); err != nil {
			return fault.JobFiles.New("open results: %w", err)
		}
		m.again = bufio.NewReaderSize(m.file, 1<<20)
	}
	if err = m.arrays.open(m.Retried); err != nil {
		return err
	}
	options := commit.Options{Path: m.Output, Errors: m.Errors, Format: m.Format, Arrays: m.Arrays, WorkDir: m.Dir, KeepFailed: m.KeptApart}
	if m.KeptApart {
		options.Errors = ""
	}
	if m.Layout != nil {
		options.Layout = columns.NewShared(nil, m.Layout)
	}
	m.files = m.parts()
	if m.files[0].Name != "" {
		options.PartBytes = 1
	}
	m.to, err = commit.NewRewriter(options, commit.PartOptions{Store: m.Store, ErrorsApart: options.Errors != "", Rows: m.Layout != nil})
	if err != nil {
		return err
	}
	m.changed = make([]bool, len(m.files))
	number := 0
	err = record.ReadFailures(m.Failures, func(f record.Failure) error {
		for number < len(m.files)-1 && f.Record >= m.files[number+1].First {
			number++
		}
		m.changed[number] = m.changed[number] || f.Kind != fault.Upstream
		return nil
	})
	if err != nil {
		return err
	}
	return m.beginFile()
}

// beginFile begins with the next file. A part of a folder that does not change is linked, unless
// its lines are counted for the arrays.
func (m *merger) beginFile() error {
	part := m.files[m.number]
	err := m.to.Begin(part)
	if err != nil || part.Name != "" && len(m.Arrays) == 0 && !m.NoValues && !m.changed[m.number] {
		return err
	}
	path := filepath.Join(m.Output, part.Name)
	if m.Format.Table {
		t, err := openTable(path, m.Format, m.NoValues, m.start, m.to)
		if t != nil {
			m.source = t
		}
		return err
	}
	lines, err := openLines(path, m.Format)
	if err == nil {
		m.source = &lineSource{oldLines: lines, store: m.Store, start: m.start, arrays: &m.arrays, to: m.to}
	}
	return err
}

// endFile takes over the rest of the current file.
func (m *merger) endFile() (err error) {
	p := m.files[m.number]
	if m.source == nil {
		err = m.to.Link(p, m.Output)
	} else {
		err = m.source.finish(p.CRC32C)
		m.source.close()
		m.source = nil
	}
	if err != nil {
		return err
	}
	m.start += p.Length()
	return m.to.EndPart()
}

func (m *merger) openFailed() (err error) {
	if m.failed, err = os.Open(m.Failed); err != nil {
		return fault.JobFiles.New("open retry input: %w", err)
	}
	m.position = int64(len(failedStart))
	return nil
}

// replace puts a record's new result in the place of its mark. A record that had a mark in the
// input stays as it is.
func (m *merger) replace(f record.Failure) (err error) {
	for p := m.files[m.number]; f.Record >= p.First && f.Record-p.First >= p.Records; p = m.files[m.number] {
		if m.number == len(m.files)-1 {
			return fault.OutputChanged.New("%s was changed since the job wrote it: it has no record %d", m.Output, f.Record)
		}
		if err := m.endFile(); err != nil {
			return err
		}
		m.number++
		if err := m.beginFile(); err != nil {
			return err
		}
	}
	was := commit.Failed{Failure: f}
	if m.kept != nil {
		if was.Data, err = m.kept.line(f); err != nil {
			return err
		}
	}
	if m.source == nil {
		was.At -= m.start
		return m.to.Keep(was)
	}
	if err := m.source.keepTo(f.At); err != nil {
		return err
	}
	if f.Kind != fault.Upstream {
		if was.Data, err = m.record(f); err != nil {
			return err
		}
	}
	if was.Data, err = m.source.skip(was); err != nil {
		return err
	}
	outcome := commit.Outcome{Failure: &f}
	outcome.Record.Data, outcome.Record.Index = was.Data, f.Record
	if f.Kind != fault.Upstream && m.again != nil {
		if err := m.readAgain(&outcome); err != nil {
			return err
		}
	}
	return m.to.Write(outcome)
}

// readAgain reads what became of the record now. If it failed again, it has the new failure, and
// the line number of the original input.
func (m *merger) readAgain(o *commit.Outcome) error {
	size, more, failed, err := commit.NextFrame(m.again)
	if err != nil {
		return fault.Bug.New("bug: fewer results than failed records: %w", err)
	}
	f := o.Failure
	if failed {
		f.Detail, f.Device = "", ""
		if err := json.NewDecoder(io.LimitReader(m.again, size)).Decode(f); err != nil {
			return storage(err)
		}
		_, err := io.CopyN(io.Discard, m.again, more)
		return storage(err)
	}
	o.Failure = nil
	both := make([]byte, size+more)
	if _, err = io.ReadFull(m.again, both); err != nil {
		return storage(err)
	}
	o.Lines, o.Values = both[:size:size], both[size:]
	if m.Store == chunk.StoreBatch && size > 0 {
		if o.Lines, err = record.Renumber(o.Lines, f.Record); err != nil {
			return storage(err)
		}
	}
	if m.SourceField == "" {
		return nil
	}
	from := chunk.Origin{File: f.Source, Line: f.Line, Row: f.Rows}
	if o.Lines, err = record.NewOriginWriter(m.SourceField).Append(nil, o.Lines, from); err != nil {
		return fault.Bug.New("bug: a result without the member %q: %w", m.SourceField, err)
	}
	return nil
}

// record returns the next failed record as it was in the input. It is mapped, because it
// may have failed for being too long to read.
func (m *merger) record(f record.Failure) ([]byte, error) {
	m.mapped.Unmap()
	m.mapped = files.Mapping{}
	size := f.Length + int64(len(failedEnd))
	info, err := m.failed.Stat()
	if err != nil || f.Length < 0 || m.position+size > info.Size() {
		return nil, fault.OutputChanged.New("%s was changed: it has no record at byte %d", m.Failed, m.position)
	}
	if m.mapped, err = files.Map(m.failed, m.position, size); err != nil {
		return nil, fault.JobFiles.New("read retry input: %w", err)
	}
	data := m.mapped.Data[:f.Length]
	if chunk.Checksum(data) != f.CRC32C {
		return nil, fault.OutputChanged.New("%s was changed: byte %d is not the start of the failed record of line %d", m.Failed, m.position, f.Line)
	}
	m.position += size
	return data, nil
}

func (m *merger) close() {
	m.mapped.Unmap()
	for _, file := range []*os.File{m.failed, m.file} {
		if file != nil {
			file.Close()
		}
	}
	if m.kept != nil {
		m.kept.close()
	}
	if m.source != nil {
		m.source.close()
	}
	m.arrays.close()
	if m.to != nil {
		m.to.Close()
	}
}

// storage classifies a write error.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return fault.WriteFailed.New("rewrite output: %w", err)
}
