package commit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

const (
	partBuffer = 256 << 10
	// directBytes is the size from which data is written directly instead of being copied
	// to the buffer.
	directBytes = 64 << 10
)

var newline = []byte("\n")

// suffixes are those of the names of a part's files.
var suffixes = [chunk.PartFiles]string{".out", ".err", ".failures"}

// modes are the modes of the finished files.
var modes = [chunk.PartFiles]os.FileMode{files.PublicMode, files.PublicMode, files.PrivateMode}

// Part is the result of a segment while it is being written.
type Part struct {
	options PartOptions
	files   [chunk.PartFiles]partFile
	index   partFile // of the lines, in a job with columns
	values  partFile // of the columns
	entry   []byte   // scratch
	lines   int64    // of the results
	tally   chunk.Tally
}

// PartOptions say how to write a part.
type PartOptions struct {
	// Path is the prefix of its file names. It includes the attempt, so that two attempts
	// never write to the same file.
	Path string
	// Chunk is the chunk whose records, or first records, the part holds.
	Chunk chunk.Chunk
	// ErrorsApart writes failed records to a separate file.
	ErrorsApart bool
	// Framed writes the number of bytes before each record's lines, and FailedFrame for a
	// failed record, so that a reader can tell which lines belong to which record.
	Framed bool
	// FrameFailures, with Framed, adds two more frames after FailedFrame: the failure as
	// JSON, and the record.
	FrameFailures bool
	// Rows: the job has columns. Each line of the results has an entry in an index, and those
	// of results have values. In framed results, the number of bytes of a record's lines is
	// followed by that of their values, which follow the lines.
	Rows bool
	// Table, with Rows: the results become rows of a table, which do not hold whole records.
	// Failed records are therefore kept in the separate file, too, and the positions of
	// failures count rows.
	Table bool
	// Batch: the results are lines of OpenAI's batch files. A failed record has a line with its
	// error there, and is also kept in the separate file.
	Batch bool
	// Step and Device are recorded in marks and failures.
	Step   string
	Device string
}

// FailedFrame stands for a failed record in framed results.
const FailedFrame = -1

// NewPart begins a part. Its files are created on their first write.
func NewPart(options PartOptions) *Part {
	p := &Part{options: options}
	for i, suffix := range suffixes {
		p.files[i].path = options.Path + suffix
	}
	p.index.path, p.values.path = options.Path+indexSuffix, options.Path+valuesSuffix
	return p
}

// Succeed writes a record's lines, each with its newline.
func (p *Part) Succeed(lines []byte) error {
	p.tally.Records++
	p.tally.Succeeded++
	if err := p.frame(len(lines)); err != nil {
		return storage(err)
	}
	p.lines += int64(bytes.Count(lines, newline))
	_, err := p.files[chunk.Results].Write(lines)
	return storage(err)
}

// SucceedRows writes a record's lines, each with its newline, in a job with columns. values
// are those of all lines.
func (p *Part) SucceedRows(lines, values []byte) error {
	p.tally.Records++
	p.tally.Succeeded++
	if p.options.Framed {
		_, err := fmt.Fprintf(&p.files[chunk.Results], "%d %d\n", len(lines), len(values))
		for _, data := range [][]byte{lines, values} {
			if err == nil && len(data) > 0 {
				_, err = p.files[chunk.Results].Write(data)
			}
		}
		return storage(err)
	}
	_, err := p.files[chunk.Results].Write(lines)
	if err == nil && len(values) > 0 {
		_, err = p.values.Write(values)
	}
	if err == nil {
		err = p.addEntries(lines)
	}
	return storage(err)
}

// SucceedStored writes n consecutive records that are already lines, in a job with columns.
// values are those of all lines. It must not be used for framed results.
func (p *Part) SucceedStored(lines []byte, n int, values []byte) error {
	p.tally.Records += int64(n)
	p.tally.Succeeded += int64(n)
	_, err := p.files[chunk.Results].Write(lines)
	if err == nil && len(values) > 0 {
		_, err = p.values.Write(values)
	}
	if err == nil {
		err = p.addEntries(lines)
	}
	return storage(err)
}

// addEntries adds lines with values to the index.
func (p *Part) addEntries(lines []byte) error {
	p.entry = p.entry[:0]
	for len(lines) > 0 {
		length := bytes.IndexByte(lines, '\n') + 1
		lines = lines[length:]
		p.lines++
		p.entry = columns.AppendEntry(p.entry, int64(length), true)
	}
	_, err := p.index.Write(p.entry)
	return err
}

// addEntry adds a line without values to the index.
func (p *Part) addEntry(length int64) error {
	p.entry = columns.AppendEntry(p.entry[:0], length, false)
	_, err := p.index.Write(p.entry)
	return err
}

// SucceedUnchanged writes n consecutive records that are already lines. It must not be used
// for framed results.
func (p *Part) SucceedUnchanged(lines []byte, n int) error {
	p.tally.Records += int64(n)
	p.tally.Succeeded += int64(n)
	p.lines += int64(n)
	_, err := p.files[chunk.Results].Write(lines)
	return storage(err)
}

// frame writes the size of a record's lines to framed results.
func (p *Part) frame(size int) error {
	if !p.options.Framed {
		return nil
	}
	_, err := fmt.Fprintf(&p.files[chunk.Results], "%d\n", size)
	return err
}

// frameFailed writes the frames of a failed record.
func (p *Part) frameFailed(r input.Record, e *fault.Error) error {
	if err := p.frame(FailedFrame); err != nil || !p.options.FrameFailures {
		return err
	}
	described := *e
	described.Step = p.step(e)
	encoded, err := json.Marshal(&described)
	if err != nil {
		return err
	}
	for _, data := range [][]byte{encoded, r.Data} {
		if err := p.frame(len(data)); err != nil {
			return err
		}
		if _, err := p.files[chunk.Results].Write(data); err != nil {
			return err
		}
	}
	return nil
}

// Drop counts a record without a line.
func (p *Part) Drop() error {
	p.tally.Records++
	p.tally.Dropped++
	return storage(p.frame(0))
}

// Fail writes a record marked with its failure.
func (p *Part) Fail(r input.Record, e *fault.Error) error {
	e = e.Bounded()
	p.tally.Records++
	p.tally.Failed++
	at := p.position()
	from := p.options.Chunk.Origin(r.Line)
	mark := record.Mark{Kind: e.Kind, Message: e.Message, Step: p.step(e), File: from.File, Line: from.Line, Row: from.Row}
	var err error
	if p.options.Framed {
		err = p.frameFailed(r, e)
	} else {
		err = p.keep(
			func(w io.Writer) error { return record.WriteMarked(w, r.Data, mark) },
			p.stand(r, mark, func(w io.Writer) error { return record.WriteRow(w, r.Data, mark) }))
	}
	if err != nil {
		return storage(err)
	}
	return p.note(r, e, at, string(record.MarkOf(r.Data)))
}

// step returns where a record failed: the step of a chain that reported it, or the kernel.
func (p *Part) step(e *fault.Error) string {
	if e.Step != "" {
		return e.Step
	}
	return p.options.Step
}

// Pass writes a record that had a mark in the input: unchanged, but counted as failed.
func (p *Part) Pass(r input.Record) error {
	p.tally.Records++
	p.tally.Failed++
	at := p.position()
	e := fault.New(fault.Upstream, "the record already has an _error in the input")
	if message := record.MessageOf(record.MarkOf(r.Data)); message != "" {
		e = fault.New(fault.Upstream, "the record already has an _error in the input: %s", message).Bounded()
	}
	var err error
	if p.options.FrameFailures {
		err = p.frameFailed(r, e)
	} else {
		write := func(w io.Writer) error { return writeLine(w, r.Data) }
		err = p.keep(write, p.stand(r, record.Mark{Kind: e.Kind, Message: e.Message}, write))
	}
	if err != nil {
		return storage(err)
	}
	return p.note(r, e, at, "")
}

func writeLine(to io.Writer, line []byte) error {
	if _, err := to.Write(line); err != nil {
		return err
	}
	_, err := to.Write(newline)
	return err
}

// stand returns what writes the line that stands for a failed record in a batch file, or else
// in a table.
func (p *Part) stand(r input.Record, mark record.Mark, row func(io.Writer) error) func(io.Writer) error {
	if !p.options.Batch {
		return row
	}
	return func(w io.Writer) error { return record.WriteBatchError(w, r.Index, r.Data, mark) }
}

// keep writes the line of a failed record; row is the line that stands for it in a table or a
// batch file.
func (p *Part) keep(line, row func(io.Writer) error) error {
	if p.options.ErrorsApart || p.options.Table || p.options.Batch {
		if err := line(&p.files[chunk.FailedRecords]); err != nil || p.options.ErrorsApart && !p.options.Batch {
			return err
		}
		line = row
	}
	before := p.files[chunk.Results].sum.Bytes
	p.lines++
	if err := line(&p.files[chunk.Results]); err != nil || !p.options.Rows {
		return err
	}
	return p.addEntry(p.files[chunk.Results].sum.Bytes - before)
}

// position returns where the results end: in bytes, or in rows of a table.
func (p *Part) position() int64 {
	if p.options.Table && !p.options.Framed {
		return p.lines
	}
	return p.files[chunk.Results].sum.Bytes
}

// note writes a line of failures.jsonl and tallies the failure. at is the record's position
// in the results, or the position it would have; replaced is the mark it had in the input.
func (p *Part) note(r input.Record, e *fault.Error, at int64, replaced string) error {
	from := p.options.Chunk.Origin(r.Line)
	p.tally.Add(chunk.FailureTally(e.Kind.String(), e.Message, e.Detail, from.Line).In(from, r.Index))
	line, err := record.Failure{
		At: at, Size: p.position() - at,
		Record: r.Index, Line: from.Line, Rows: from.Row, File: cmp.Or(from.File, p.options.Chunk.File), Source: from.File, Offset: r.Offset,
		Length: int64(len(r.Data)), CRC32C: chunk.Checksum(r.Data),
		Kind: e.Kind, Message: e.Message, Step: p.step(e), Detail: e.Detail, Device: p.options.Device,
		Replaced: replaced,
	}.AppendLine(nil)
	if err != nil {
		return err
	}
	_, err = p.files[chunk.Failures].Write(line)
	return storage(err)
}

// Counts returns the counts of what has been written.
func (p *Part) Counts() chunk.Counts { return p.tally.Counts }

// Close closes the part and returns its segment. rest is what remains of the chunk after
// it.
func (p *Part) Close(rest chunk.Chunk) (chunk.Segment, error) {
	c := p.options.Chunk
	s := chunk.Segment{
		First: c.First, Start: c.Start(), Next: rest.Start(),
		Part: filepath.Base(p.options.Path), Lines: p.lines, Inner: c.Following > 0 || rest.Records > 0, Tally: p.tally,
	}
	var failed error
	for i := range p.files {
		failed = cmp.Or(failed, p.files[i].close()) // report only the first error
		s.Files[i] = p.files[i].sum
	}
	failed = cmp.Or(failed, p.index.close(), p.values.close())
	if p.options.Rows && !p.options.Framed {
		s.Columns = &chunk.PartColumns{Index: p.index.sum, Values: p.values.sum}
	}
	return s, storage(failed)
}

// Discard deletes the part.
func (p *Part) Discard() {
	_, _ = p.Close(chunk.Chunk{})
	RemovePart(p.options.Path)
}

// RemovePart deletes the files of a part.
func RemovePart(path string) {
	for _, suffix := range suffixes {
		_ = os.Remove(path + suffix)
	}
	for _, suffix := range []string{indexSuffix, valuesSuffix} {
		_ = os.Remove(path + suffix)
	}
}

// EarlySuffix is that of the names of logs in which workers keep answers before they are
// committed; see worker/early.
const EarlySuffix = ".early"

// HasEarly reports whether a folder of parts has such logs.
func HasEarly(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return filepath.Ext(entry.Name()) == EarlySuffix })
}

// removeCommitted deletes a part that is in the output, and the log of its answers.
func removeCommitted(path string) {
	RemovePart(path)
	_ = os.Remove(path + EarlySuffix)
}

// checkPart reads a part and returns an error if it does not match its segment.
func checkPart(dir string, s chunk.Segment) error {
	for i, suffix := range suffixes {
		if err := checkPartFile(filepath.Join(dir, s.Part+suffix), s.Files[i]); err != nil {
			return err
		}
	}
	if s.Columns == nil {
		return nil
	}
	if err := checkPartFile(filepath.Join(dir, s.Part+indexSuffix), s.Columns.Index); err != nil {
		return err
	}
	return checkPartFile(filepath.Join(dir, s.Part+valuesSuffix), s.Columns.Values)
}

func checkPartFile(path string, want chunk.FileSum) error {
	sum, err := chunk.SumFile(context.Background(), path)
	if errors.Is(err, os.ErrNotExist) && want.Bytes == 0 {
		return nil
	}
	if err == nil && sum != want {
		err = fmt.Errorf("%s does not match its recorded size and checksum", path)
	}
	return err
}

// storage classifies a write error.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "write part: %w", err)
}

// partBuffers are reused because the system must find and clear the memory of a new buffer,
// which is expensive for a small part.
var partBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, partBuffer) }}

// partFile is a file that is created on its first write.
type partFile struct {
	path string
	file *os.File
	out  *bufio.Writer
	sum  chunk.FileSum
}

func (s *partFile) Write(p []byte) (int, error) {
	if s.file == nil {
		file, err := files.Create(s.path, files.PrivateMode)
		if err != nil {
			return 0, err
		}
		s.file, s.out = file, partBuffers.Get().(*bufio.Writer)
		s.out.Reset(s.file)
	}
	_, _ = s.sum.Write(p)
	if len(p) < directBytes {
		return s.out.Write(p)
	}
	if err := s.out.Flush(); err != nil {
		return 0, err
	}
	return s.file.Write(p)
}

func (s *partFile) close() error {
	if s.file == nil {
		return nil
	}
	err := cmp.Or(s.out.Flush(), s.file.Close())
	s.out.Reset(nil)
	partBuffers.Put(s.out)
	s.file, s.out = nil, nil
	return err
}
