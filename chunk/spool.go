package chunk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

const (
	// spoolBytes bounds a spool file, unless one line is longer.
	spoolBytes = 64 << 20
	// spoolAhead is how many chunks a stream is read ahead of the workers: the
	// spool takes disk, and a fast producer must wait.
	spoolAhead = 8
)

// SpoolOptions say how a stream becomes chunks.
type SpoolOptions struct {
	Limits
	// Dir is where the spool files are written: a folder of its own, which is
	// made here and removed by Close.
	Dir string
	// ChunkRecords is the number of records in a chunk.
	ChunkRecords int64
	// Flush is how long the first record of a chunk may wait for the others.
	Flush time.Duration
	// Ahead is how many chunks may wait for a worker; 0 means 8.
	Ahead int
}

// spool is a source that copies a stream into files, one chunk each, so that
// workers can read it like a file.
type spool struct {
	options SpoolOptions
	chunks  chan cut
	cancel  context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	records int64
	blank   int64
	known   bool
	// unreleased is how many records of each file are still needed.
	unreleased map[string]int64
}

// Spool reads r to its end. It owns r's reading but not its closing: a Read that
// blocks for ever is left behind on Close.
func Spool(r io.Reader, options SpoolOptions) (Source, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fault.New(fault.Storage, "make spool folder: %w", err)
	}
	if options.Ahead <= 0 {
		options.Ahead = spoolAhead
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &spool{
		options: options, cancel: cancel, unreleased: make(map[string]int64),
		chunks: make(chan cut, options.Ahead), stopped: make(chan struct{}),
	}
	go s.run(ctx, r)
	return s, nil
}

// read is a line of the stream, or its end.
type read struct {
	line []byte
	err  error
}

func (s *spool) run(ctx context.Context, r io.Reader) {
	defer close(s.stopped)
	defer close(s.chunks)
	w := &spoolWriter{spool: s, ctx: ctx, line: 1}
	err := w.copy(readLines(ctx, r))
	if err == nil {
		err = w.cut()
	}
	w.discard()
	if err != nil {
		select {
		case s.chunks <- cut{err: err}:
		case <-ctx.Done():
		}
		return
	}
	s.mu.Lock()
	s.known = true
	s.mu.Unlock()
}

// readLines reads in a goroutine of its own, so that a stream that pauses does
// not hold back what is there. A line may come in pieces; the last has its end.
func readLines(ctx context.Context, r io.Reader) <-chan read {
	lines := make(chan read, 64)
	go func() {
		defer close(lines)
		in := bufio.NewReaderSize(r, 1<<20)
		for first := true; ; first = false {
			piece, err := in.ReadSlice('\n')
			if first { // not by a Peek, which would wait for three bytes
				piece = bytes.TrimPrefix(piece, byteOrderMark)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
			select {
			case lines <- read{line: bytes.Clone(piece), err: err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// spoolWriter fills one spool file after the other.
type spoolWriter struct {
	spool *spool
	ctx   context.Context

	number int
	file   *os.File
	out    *bufio.Writer

	inLine  bool  // the last piece had no end yet
	blank   bool  // the line so far is white space
	skip    bool  // the line belongs to a record before Limits.Offset
	seen    int64 // records, those passed over included
	line    int64 // number of the next line
	current Chunk
	lines   int64 // in the current chunk
}

func (w *spoolWriter) copy(lines <-chan read) error {
	var flush <-chan time.Time
	for {
		select {
		case piece, ok := <-lines:
			if !ok {
				return w.ctx.Err()
			}
			if err := w.take(piece.line); err != nil {
				return err
			}
			if errors.Is(piece.err, io.EOF) {
				return w.endLine()
			}
			if piece.err != nil {
				return fault.New(fault.Storage, "read input: %w", piece.err)
			}
			if w.done() {
				return nil
			}
			switch {
			case w.current.Records == 0:
				flush = nil
			case flush == nil && w.spool.options.Flush > 0:
				flush = time.After(w.spool.options.Flush)
			}
		case <-flush:
			flush = nil
			if !w.inLine {
				if err := w.cut(); err != nil {
					return err
				}
			}
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
}

// done reports whether the limit is reached; the rest of the stream is not read.
func (w *spoolWriter) done() bool {
	limit := w.spool.options.Limit
	return limit > 0 && !w.inLine && w.seen-w.spool.options.Offset >= limit
}

// take writes a piece of a line.
func (w *spoolWriter) take(piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	if !w.inLine {
		w.inLine, w.blank = true, true
		w.skip = w.seen < w.spool.options.Offset
	}
	w.blank = w.blank && len(bytes.Trim(piece, " \t\r\n")) == 0
	if !w.skip {
		if err := w.write(piece); err != nil {
			return fault.New(fault.Storage, "spool input: %w", err)
		}
	}
	if piece[len(piece)-1] == '\n' {
		return w.endLine()
	}
	return nil
}

func (w *spoolWriter) write(piece []byte) error {
	if w.file == nil {
		path := filepath.Join(w.spool.options.Dir, fmt.Sprintf("spool-%06d.jsonl", w.number))
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		w.number++
		w.file, w.out = file, bufio.NewWriterSize(file, 256<<10)
		w.current = Chunk{File: path, First: w.seen, Line: w.line}
		w.lines = 0
	}
	w.current.Length += int64(len(piece))
	_, err := w.out.Write(piece)
	return err
}

func (w *spoolWriter) endLine() error {
	if !w.inLine {
		return nil
	}
	w.inLine = false
	w.line++
	if !w.blank {
		w.seen++
	}
	if w.skip {
		return nil
	}
	w.lines++
	if !w.blank {
		w.current.Records++
	}
	if w.current.Records >= w.spool.options.ChunkRecords || w.current.Length >= spoolBytes {
		return w.cut()
	}
	return nil
}

// cut closes the spool file and hands it over as a chunk.
func (w *spoolWriter) cut() error {
	if w.file == nil {
		return nil
	}
	if err := w.out.Flush(); err != nil {
		return fault.New(fault.Storage, "spool input: %w", err)
	}
	if err := w.file.Close(); err != nil {
		return fault.New(fault.Storage, "spool input: %w", err)
	}
	c := w.current
	w.file, w.current = nil, Chunk{}
	w.spool.mu.Lock()
	w.spool.records += c.Records
	w.spool.unreleased[c.File] = c.Records
	w.spool.blank += w.lines - c.Records
	w.spool.mu.Unlock()
	if c.Records == 0 {
		_ = os.Remove(c.File) // else Close does
		return nil
	}
	select {
	case w.spool.chunks <- cut{chunk: c}:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// discard closes what an error left open.
func (w *spoolWriter) discard() {
	if w.file != nil {
		w.file.Close()
	}
}

func (s *spool) Next(ctx context.Context) (Chunk, error) {
	select {
	case c, ok := <-s.chunks:
		if !ok {
			return Chunk{}, io.EOF
		}
		return c.chunk, c.err
	case <-ctx.Done():
		return Chunk{}, ctx.Err()
	}
}

func (s *spool) Total() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records, s.known
}

func (s *spool) Blank() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blank
}

// Release counts: a chunk may come back in pieces, and its file goes with the
// last of them.
func (s *spool) Release(c Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreleased[c.File] -= c.Records; s.unreleased[c.File] <= 0 {
		delete(s.unreleased, c.File)
		_ = os.Remove(c.File)
	}
}

func (s *spool) Close() error {
	s.cancel()
	for range s.chunks { // until the writing goroutine has gone
	}
	<-s.stopped
	return os.RemoveAll(s.options.Dir)
}
