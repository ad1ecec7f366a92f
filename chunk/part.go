package chunk

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"

	"github.com/gpurun/gpurun/internal/fault"
)

// Counts is what became of records. Records = Succeeded + Failed + Dropped.
type Counts struct {
	Records   int64 `json:"records"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dropped   int64 `json:"dropped"`
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	c.Records += d.Records
	c.Succeeded += d.Succeeded
	c.Failed += d.Failed
	c.Dropped += d.Dropped
}

// Segment is a finished run of records: the records First..First+Counts.Records
// of the input, and the part that holds their results.
type Segment struct {
	First  int64  `json:"first"`
	Part   string `json:"part"` // the path its files begin with
	Counts Counts `json:"counts"`
}

// Failure is one line of failures.jsonl: what is known of a failed record beside
// its mark.
type Failure struct {
	Record  int64      `json:"record"`
	Line    int64      `json:"line"`
	File    string     `json:"file"`
	Offset  int64      `json:"offset"`
	Length  int64      `json:"length"`
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
	Detail  string     `json:"detail,omitempty"`
	Device  string     `json:"device,omitempty"`
}

// The files of a part: results, failed records where they have a file of their
// own, and lines of failures.jsonl. A file that would be empty is not made.
const (
	resultsSuffix  = ".out"
	errorsSuffix   = ".err"
	failuresSuffix = ".failures"
)

const partBuffer = 256 << 10

// Part is the result of a segment while it is written.
type Part struct {
	path     string
	first    int64
	apart    bool // failed records go to a file of their own
	step     string
	device   string
	results  stream
	errors   stream
	failures stream
	counts   Counts
}

// PartOptions say how a part is written.
type PartOptions struct {
	// Path is what its files' names begin with; it carries the attempt, so that
	// two attempts never write to one file.
	Path string
	// First is the number of its first record.
	First int64
	// ErrorsApart sends failed records to a file of their own.
	ErrorsApart bool
	// Step and Device stand in marks and failures.
	Step   string
	Device string
}

// NewPart begins a part; files are made when something is written to them.
func NewPart(options PartOptions) *Part {
	return &Part{
		path: options.Path, first: options.First, apart: options.ErrorsApart,
		step: options.Step, device: options.Device,
		results:  stream{path: options.Path + resultsSuffix},
		errors:   stream{path: options.Path + errorsSuffix},
		failures: stream{path: options.Path + failuresSuffix},
	}
}

// Succeed writes a record's lines, each with its newline.
func (p *Part) Succeed(lines []byte) error {
	p.counts.Records++
	p.counts.Succeeded++
	_, err := p.results.Write(lines)
	return storage(err)
}

// Drop counts a record that has no line.
func (p *Part) Drop() {
	p.counts.Records++
	p.counts.Dropped++
}

// Fail writes a record marked with its failure.
func (p *Part) Fail(r Record, file string, e *fault.Error) error {
	p.counts.Records++
	p.counts.Failed++
	mark := Mark{Kind: e.Kind, Message: e.Message, Step: p.step, Line: r.Line}
	if err := WriteMarked(p.failed(), r.Data, mark); err != nil {
		return storage(err)
	}
	return p.note(r, file, e)
}

// Pass writes a record that came in with a mark: untouched, counted as failed.
func (p *Part) Pass(r Record, file string) error {
	p.counts.Records++
	p.counts.Failed++
	if err := writeAll(p.failed(), r.Data, newline); err != nil {
		return storage(err)
	}
	return p.note(r, file, fault.New(fault.Upstream, "the record came in with an _error"))
}

func (p *Part) failed() *stream {
	if p.apart {
		return &p.errors
	}
	return &p.results
}

func (p *Part) note(r Record, file string, e *fault.Error) error {
	line, err := json.Marshal(Failure{
		Record: r.Index, Line: r.Line, File: file, Offset: r.Offset, Length: int64(len(r.Data)),
		Kind: e.Kind, Message: e.Message, Detail: e.Detail, Device: p.device,
	})
	if err != nil {
		return err
	}
	return storage(writeAll(&p.failures, line, newline))
}

// Counts is what was written so far.
func (p *Part) Counts() Counts { return p.counts }

// Close ends the part; the segment is what it holds.
func (p *Part) Close() (Segment, error) {
	err := cmp.Or(p.results.close(), p.errors.close(), p.failures.close()) // the first says enough
	return Segment{First: p.first, Part: p.path, Counts: p.counts}, storage(err)
}

// Discard removes what was written.
func (p *Part) Discard() {
	_, _ = p.Close()
	RemovePart(p.path)
}

// RemovePart removes the files of a part.
func RemovePart(path string) {
	for _, suffix := range []string{resultsSuffix, errorsSuffix, failuresSuffix} {
		_ = os.Remove(path + suffix)
	}
}

// storage classifies an error of writing.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "write part: %w", err)
}

// stream is a file that is made at its first byte.
type stream struct {
	path string
	file *os.File
	out  *bufio.Writer
}

func (s *stream) Write(p []byte) (int, error) {
	if s.file == nil {
		file, err := os.Create(s.path)
		if err != nil {
			return 0, err
		}
		s.file, s.out = file, bufio.NewWriterSize(file, partBuffer)
	}
	return s.out.Write(p)
}

func (s *stream) close() error {
	if s.file == nil {
		return nil
	}
	err := s.out.Flush()
	err = cmp.Or(err, s.file.Close())
	s.file = nil
	return err
}
