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
	// directBytes is the size from which data is written directly instead of being copied
	// to the buffer.
	directBytes = 64 << 10
	// Limits on an example and its detail, because every durable point writes them to the
	// journal again. failures.jsonl holds more.
	maxExample = 2 << 10
	maxDetail  = 8 << 10
)

// Part is the result of a segment while it is being written.
type Part struct {
	options PartOptions
	files   [partFiles]partFile
	lines   int64 // of the results
	tally   Tally
}

// PartOptions say how to write a part.
type PartOptions struct {
	// Path is the prefix of its file names. It includes the attempt, so that two attempts
	// never write to the same file.
	Path string
	// Spare is a file in the same folder that the results may overwrite. The part takes it
	// over or removes it. "" means none.
	Spare string
	// Chunk is the chunk whose records, or first records, the part holds.
	Chunk Chunk
	// ErrorsApart writes failed records to a separate file.
	ErrorsApart bool
	// Framed writes the number of bytes before each record's lines, and failedFrame for a
	// failed record, so that a reader can tell which lines belong to which record.
	Framed bool
	// Step and Device are recorded in marks and failures.
	Step   string
	Device string
}

// failedFrame stands for a failed record in framed results.
const failedFrame = -1

// NewPart begins a part. Its files are created on their first write.
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

// SucceedUnchanged writes n consecutive records that are already lines. It must not be used
// for framed results.
func (p *Part) SucceedUnchanged(lines []byte, n int) error {
	p.tally.Records += int64(n)
	p.tally.Succeeded += int64(n)
	p.lines += int64(n)
	_, err := p.files[results].Write(lines)
	return storage(err)
}

// frame writes the size of a record's lines to framed results.
func (p *Part) frame(size int) error {
	if !p.options.Framed {
		return nil
	}
	_, err := fmt.Fprintf(&p.files[results], "%d\n", size)
	return err
}

// Drop counts a record without a line.
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

// step returns where a record failed: the step of a chain that reported it, or the kernel.
func (p *Part) step(e *fault.Error) string {
	if e.Step != "" {
		return e.Step
	}
	return p.options.Step
}

// Pass writes a record that had a mark in the input: unchanged, but counted as failed.
func (p *Part) Pass(r Record) error {
	p.tally.Records++
	p.tally.Failed++
	at := p.files[results].sum.Bytes
	if err := writeAll(p.failed(), r.Data, newline); err != nil {
		return storage(err)
	}
	return p.note(r, fault.New(fault.Upstream, "the record already has an _error in the input"), at, "")
}

// failed returns the file for the line of a failed record.
func (p *Part) failed() *partFile {
	if p.options.ErrorsApart {
		return &p.files[failedRecords]
	}
	p.lines++
	return &p.files[results]
}

// note writes a line of failures.jsonl and tallies the failure. at is the record's position
// in the results, or the position it would have; replaced is the mark it had in the input.
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

// Counts returns the counts of what has been written.
func (p *Part) Counts() Counts { return p.tally.Counts }

// Close closes the part and returns its segment. rest is what remains of the chunk after
// it.
func (p *Part) Close(rest Chunk) (Segment, error) {
	c := p.options.Chunk
	s := Segment{
		First: c.First, Start: Place{c.Offset, c.Line}, Next: Place{rest.Offset, rest.Line},
		Part: filepath.Base(p.options.Path), Lines: p.lines, Inner: c.Inner || rest.Records > 0, Tally: p.tally,
	}
	var failed error
	for i := range p.files {
		failed = cmp.Or(failed, p.files[i].close()) // report only the first error
		s.Files[i] = p.files[i].sum
	}
	return s, storage(failed)
}

// Discard deletes the part.
func (p *Part) Discard() {
	_, _ = p.Close(Chunk{})
	RemovePart(p.options.Path)
}

// RemovePart deletes the files of a part.
func RemovePart(path string) {
	for _, suffix := range suffixes {
		_ = os.Remove(path + suffix)
	}
}

// CheckPart reads a part and returns an error if it does not match its segment.
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
			return fmt.Errorf("%s does not match its recorded size and checksum", path)
		}
	}
	return nil
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
	path  string
	spare string // a file to overwrite; "" if there is none or it is in use
	file  *os.File
	over  bool // file was a spare and may be longer than what is written
	out   *bufio.Writer
	sum   FileSum
}

// open creates the file. A spare is renamed first, so that it never holds bytes of this
// part under the name of another.
func (s *partFile) open() error {
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

func (s *partFile) Write(p []byte) (int, error) {
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

func (s *partFile) close() error {
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
