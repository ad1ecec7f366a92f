package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

// The first input records tell which members the rows of a table have, and their types.
const (
	// sampleRecords is how many input records are looked at, and sampleBytes how much of them.
	sampleRecords = 1000
	sampleBytes   = 64 << 20
	// sampleRead is how much is read at a time.
	sampleRead = 256 << 10
)

// sampleWait is how long a stream may take to deliver the records. It is a variable so that
// tests can lower it.
var sampleWait = 10 * time.Second

// sampleInput looks at the first input records, unless the layout of the table is known.
func (p *prepared) sampleInput(ctx context.Context) error {
	if p.spec == nil || p.spec.Table == nil || p.layout.Get() != nil {
		return nil
	}
	s := newSampler(p.spec.Table)
	var err error
	if p.config.inputs == nil {
		err = s.file(ctx, p.config.Input.Path)
	} else {
		err = p.sampleFiles(ctx, s)
	}
	s.keep(p.config.Output.Keep)
	if err == nil && p.config.inputs != nil {
		if note := p.declaredColumns(p.formatOptions()).addTo(p.spec.Table, p.config.Output.mayKeep); note != "" {
			p.plan.Notes = append(p.plan.Notes, note)
		}
	}
	return err
}

// sampleFiles looks at the records of several inputs. What it reads of a stream is kept for
// the job.
func (p *prepared) sampleFiles(ctx context.Context, s *sampler) error {
	options := p.formatOptions()
	for i := range p.config.inputs.files {
		file := &p.config.inputs.files[i]
		if s.left == 0 {
			break
		}
		if file.stream != nil {
			lines, err := p.openStream(*file, options)(ctx)
			if err != nil {
				return err
			}
			sampled := &sampledLines{from: lines.ReadCloser}
			lines.ReadCloser, file.sampled = sampled, &lines
			if err := sampled.read(ctx, s); err != nil {
				return err
			}
			continue
		}
		if lines, err := openDecoded(*file, options, new(atomic.Int64))(ctx); err == nil { // a damaged file is reported when it is read
			sampled := &sampledLines{from: lines.ReadCloser}
			err = sampled.read(ctx, s)
			sampled.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sampler takes the first records of an input.
type sampler struct {
	to   *parquet.Sample
	left int
}

func newSampler(to *columns.TableSpec) *sampler {
	return &sampler{to: &to.Sample, left: sampleRecords}
}

// keep leaves out all but these members, unless there are none.
func (s *sampler) keep(names []string) {
	if len(names) > 0 {
		s.to.Columns = slices.DeleteFunc(s.to.Columns, func(c parquet.Column) bool { return !slices.Contains(names, c.Name) })
	}
}

// file looks at a file of plain lines.
func (s *sampler) file(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fault.New(fault.Usage, "open input: %w", err)
	}
	lines := &sampledLines{from: file}
	defer lines.Close()
	return lines.read(ctx, s)
}

// take looks at the lines of data, the last of which counts only if it is complete, and
// returns what it has not looked at.
func (s *sampler) take(data []byte, complete bool) []byte {
	for s.left > 0 && len(data) > 0 {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		if !found && !complete {
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.left--
			s.to.Add(line)
		}
		data = rest
	}
	return data
}

var byteOrderMark = []byte("\ufeff")

// sampledLines are lines whose beginning is looked at before they are read.
type sampledLines struct {
	from    io.ReadCloser
	head    []byte     // read and not yet returned
	err     error      // after head
	pending chan block // what is being read after it, if not nil
}

// block is some bytes, or their end.
type block struct {
	data []byte
	err  error
}

// read reads lines until the sampler has enough. A stream that pauses is not waited for.
func (l *sampledLines) read(ctx context.Context, s *sampler) error {
	timer := time.NewTimer(sampleWait)
	defer timer.Stop()
	taken := 0
	for s.left > 0 && l.err == nil && len(l.head) < sampleBytes {
		l.pending = make(chan block, 1)
		go func(to chan<- block) {
			data := make([]byte, sampleRead)
			n, err := l.from.Read(data)
			to <- block{data[:n], err}
		}(l.pending)
		select {
		case b := <-l.pending:
			l.pending = nil
			l.head, l.err = append(l.head, b.data...), b.err
			if taken == 0 && bytes.HasPrefix(l.head, byteOrderMark) {
				taken = len(byteOrderMark)
			}
			rest := s.take(l.head[taken:], errors.Is(l.err, io.EOF))
			taken = len(l.head) - len(rest)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return fault.New(fault.Canceled, "stopped before anything was started")
		}
	}
	return nil
}

// Read reads all lines, those in the sample first.
func (l *sampledLines) Read(p []byte) (int, error) {
	for len(l.head) == 0 && l.pending != nil {
		b := <-l.pending
		l.pending, l.head, l.err = nil, b.data, b.err
	}
	switch {
	case len(l.head) > 0:
		n := copy(p, l.head)
		if l.head = l.head[n:]; len(l.head) == 0 {
			l.head = nil
		}
		return n, nil
	case l.err != nil:
		return 0, l.err
	}
	return l.from.Read(p)
}

// Close closes the lines, which must not happen during a read.
func (l *sampledLines) Close() error {
	if l.pending == nil {
		return l.from.Close()
	}
	go func(pending <-chan block) {
		<-pending
		l.from.Close()
	}(l.pending)
	return nil
}
