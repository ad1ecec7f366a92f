package chunk

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

const (
	partBuffer = 256 << 10
	// directBytes is from how many bytes on a write is worth a call of its own,
	// instead of a copy in the buffer.
	directBytes = 64 << 10
	// What is kept of an example and its detail: every durable point writes them
	// to the journal again. failures.jsonl has more of it.
	maxExample = 2 << 10
	maxDetail  = 8 << 10
)

// Part is the result of a segment while it is written.
type Part struct {
	options PartOptions
	files   [streams]stream
	lines   int64 // of the results
	tally   Tally
}

// PartOptions say how a part is written.
type PartOptions struct {
	// Path is what its files' names begin with; it carries the attempt, so that
	// two attempts never write to one file.
	Path string
	// Spare is a file, in the same folder, that the results may be written over; it
	// becomes the part's, or goes. "" means a new one.
	Spare string
	// Chunk is what it is the result of, or of the beginning of.
	Chunk Chunk
	// ErrorsApart sends failed records to a file of their own.
	ErrorsApart bool
	// Framed writes, before each record's lines, how many bytes they have, and
	// failedFrame for a record that failed: for a reader that must tell whose
	// lines are whose.
	Framed bool
	// Step and Device stand in marks and failures.
	Step   string
	Device string
}

// failedFrame stands for a failed record in framed results.
const failedFrame = -1

// NewPart begins a part; files are made when something is written to them.
func NewPart(options PartOptions) *Part {
	p := &Part{options: options}
	for i, suffix := range suffixes {
		p.files[i].path = options.Path + suffix
	}
	p.files[results].spare = options.Spare
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
	_, err := p.files[results].Write(lines)
	return storage(err)
}

// SucceedUnchanged writes n records that are lines already, one behind the other;
// not for framed results.
func (p *Part) SucceedUnchanged(lines []byte, n int) error {
	p.tally.Records += int64(n)
	p.tally.Succeeded += int64(n)
	p.lines += int64(n)
	_, err := p.files[results].Write(lines)
	return storage(err)
}

// frame announces a record's lines, in framed results.
func (p *Part) frame(size int) error {
	if !p.options.Framed {
		return nil
	}
	_, err := fmt.Fprintf(&p.files[results], "%d\n", size)
	return err
}

// Drop counts a record that has no line.
func (p *Part) Drop() error {
	p.tally.Records++
	p.tally.Dropped++
	return storage(p.frame(0))
}

// Fail writes a record marked with its failure.
func (p *Part) Fail(r Record, e *fault.Error) error {
	e = e.Bounded()
	p.tally.Records++
	p.tally.Failed++
	at := p.files[results].sum.Bytes
	mark := Mark{Kind: e.Kind, Message: e.Message, Step: p.step(e), Line: r.Line}
	var err error
	if p.options.Framed {
		err = p.frame(failedFrame)
	} else {
		err = WriteMarked(p.failed(), r.Data, mark)
	}
	if err != nil {
		return storage(err)
	}
	return p.note(r, e, at, string(markOf(r.Data)))
}

// step is where a record failed: the one of a chain that said so, or the kernel.
func (p *Part) step(e *fault.Error) string {
	if e.Step != "" {
		return e.Step
	}
	return p.options.Step
}

// Pass writes a record that came in with a mark: untouched, counted as failed.
func (p *Part) Pass(r Record) error {
	p.tally.Records++
	p.tally.Failed++
	at := p.files[results].sum.Bytes
	if err := writeAll(p.failed(), r.Data, newline); err != nil {
		return storage(err)
	}
	return p.note(r, fault.New(fault.Upstream, "the record came in with an _error"), at, "")
}

// failed is where the one line of a failed record goes.
func (p *Part) failed() *stream {
	if p.options.ErrorsApart {
		return &p.files[failedRecords]
	}
	p.lines++
	return &p.files[results]
}

// note writes a line of failures.jsonl, and books the failure; at is where in the
// results the record stands, or would, and replaced the mark that it came in with.
func (p *Part) note(r Record, e *fault.Error, at int64, replaced string) error {
	p.tally.Add(FailureTally(e.Kind, e.Message, e.Detail, r.Line))
	line, err := Failure{
		At: at, Size: p.files[results].sum.Bytes - at,
		Record: r.Index, Line: r.Line, File: p.options.Chunk.File, Offset: r.Offset,
		Length: int64(len(r.Data)), CRC32C: CRC(crc32.Checksum(r.Data, castagnoli)),
		Kind: e.Kind, Message: e.Message, Step: p.step(e), Detail: e.Detail, Device: p.options.Device,
		Replaced: replaced,
	}.appendLine(nil)
	if err != nil {
		return err
	}
	return storage(writeAll(&p.files[failures], line))
}

// Counts is what was written so far.
func (p *Part) Counts() Counts { return p.tally.Counts }

// Close ends the part; the segment is what it holds. rest is what of the chunk
// comes behind it.
func (p *Part) Close(rest Chunk) (Segment, error) {
	c := p.options.Chunk
	s := Segment{
		First: c.First, Start: Place{c.Offset, c.Line}, Next: Place{rest.Offset, rest.Line},
		Part: filepath.Base(p.options.Path), Lines: p.lines, Inner: c.Inner || rest.Records > 0, Tally: p.tally,
	}
	var failed error
	for i := range p.files {
		failed = cmp.Or(failed, p.files[i].close()) // the first says enough
		s.Files[i] = p.files[i].sum
	}
	return s, storage(failed)
}

// Discard removes what was written.
func (p *Part) Discard() {
	_, _ = p.Close(Chunk{})
	RemovePart(p.options.Path)
}

// RemovePart removes the files of a part.
func RemovePart(path string) {
	for _, suffix := range suffixes {
		_ = os.Remove(path + suffix)
	}
}

// CheckPart reads a part and says whether it holds what the segment says.
func CheckPart(dir string, s Segment) error {
	for i, suffix := range suffixes {
		path := filepath.Join(dir, s.Part+suffix)
		sum, err := sumFile(path)
		if errors.Is(err, os.ErrNotExist) && s.Files[i].Bytes == 0 {
			continue
		}
		if err != nil {
			return err
		}
		if sum != s.Files[i] {
			return fmt.Errorf("%s is not what was written", path)
		}
	}
	return nil
}

// storage classifies an error of writing.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "write part: %w", err)
}

// partBuffers are for the next part: a fresh buffer is memory that the system has to
// find and clear first, and a part may be small.
var partBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, partBuffer) }}

// stream is a file that is made at its first byte.
type stream struct {
	path  string
	spare string // a file to write over; "" if there is none, or it is in use
	file  *os.File
	over  bool // file was a spare, and may be longer than what is written
	out   *bufio.Writer
	sum   FileSum
}

// open makes the file. A spare gets its name first, so that it never has bytes of
// this part under the name of another.
func (s *stream) open() error {
	spare := s.spare
	s.spare = ""
	if spare != "" && os.Rename(spare, s.path) == nil {
		crash.Point("spare-taken")
		file, err := os.OpenFile(s.path, os.O_WRONLY, 0)
		s.file, s.over = file, true
		return err
	}
	file, err := createNew(s.path, PrivateMode)
	s.file = file
	return err
}

func (s *stream) Write(p []byte) (int, error) {
	if s.file == nil {
		if err := s.open(); err != nil {
			return 0, err
		}
		s.out = partBuffers.Get().(*bufio.Writer)
		s.out.Reset(s.file)
	}
	s.sum.add(p)
	if len(p) < directBytes {
		return s.out.Write(p)
	}
	if err := s.out.Flush(); err != nil {
		return 0, err
	}
	return s.file.Write(p)
}

func (s *stream) close() error {
	if s.spare != "" {
		_ = os.Remove(s.spare)
		s.spare = ""
	}
	if s.file == nil {
		return nil
	}
	err := s.out.Flush()
	if s.over {
		crash.Point("spare-written")
		err = cmp.Or(err, s.file.Truncate(s.sum.Bytes))
	}
	err = cmp.Or(err, s.file.Close())
	s.out.Reset(nil)
	partBuffers.Put(s.out)
	s.file, s.out = nil, nil
	return err
}
