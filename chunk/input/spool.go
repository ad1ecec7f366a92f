package input

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

const (
	// spoolBytes limits the size of a spool file, unless one line is longer.
	spoolBytes = 64 << 20
	// spoolAhead is how many chunks of a stream to prefetch. The spool takes disk space, so
	// a fast producer must wait.
	spoolAhead = 8
	// longestHeld is how much of an unfinished line is kept in memory.
	longestHeld = 1 << 20
)

// SpoolOptions say how to split a stream into chunks.
type SpoolOptions struct {
	Limits
	// Dir is the folder for the spool files. Spool creates it and Close removes it.
	Dir string
	// ChunkRecords is the number of records per chunk.
	ChunkRecords int64
	// Flush is how long the first record of a chunk may wait for the others.
	Flush time.Duration
	// Ahead is how many chunks may wait for a worker; 0 means 8.
	Ahead int
}

// spool is a source that copies a stream to files, one chunk each, so that workers can read
// it like a file.
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

// Spool reads r to its end. It does not close r: on Close, a Read that blocks forever is
// abandoned.
func Spool(r io.Reader, options SpoolOptions) (Source, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fault.New(fault.Storage, "create spool folder: %w", err)
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

func (s *spool) run(ctx context.Context, r io.Reader) {
	defer close(s.stopped)
	defer close(s.chunks)
	w := &spoolWriter{spool: s, ctx: ctx, line: 1}
	err := w.copy(readBlocks(ctx, r))
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

// spoolWriter fills one spool file after another.
type spoolWriter struct {
	spool *spool
	ctx   context.Context

	number int
	file   *os.File
	out    *bufio.Writer

	held    []byte // the beginning of a line
	inLine  bool   // the beginning of the line is already written
	blank   bool   // the line is white space so far
	skip    bool   // the line is before Limits.Offset
	seen    int64  // records, including skipped ones
	line    int64  // number of the next line
	current chunk.Chunk
	lines   int64 // in the current chunk
}

func (w *spoolWriter) copy(in blocks) error {
	var flush <-chan time.Time
	timed := 0 // the chunk that flush belongs to
	for {
		select {
		case block, ok := <-in.filled:
			if !ok {
				return w.ctx.Err()
			}
			if err := w.take(block.data); err != nil {
				return err
			}
			if errors.Is(block.err, io.EOF) {
				err := w.takeHeld()
				w.endLine()
				return err
			}
			if fault.As(block.err) != nil { // the reader's fault is more precise
				return block.err
			}
			if block.err != nil {
				return fault.New(fault.Storage, "read input: %w", block.err)
			}
			if w.done() {
				return nil
			}
			in.empty <- block.data
			switch {
			case w.current.Records == 0:
				flush = nil
			case (flush == nil || timed != w.number) && w.spool.options.Flush > 0:
				flush, timed = time.After(w.spool.options.Flush), w.number
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

// done reports whether the limit is reached. The rest of the stream is not read.
func (w *spoolWriter) done() bool {
	limit := w.spool.options.Limit
	return limit > 0 && !w.inLine && w.seen-w.spool.options.Offset >= limit
}

// take writes complete lines and holds the rest until its line is complete or too long to
// hold: a stream may pause within a line.
func (w *spoolWriter) take(data []byte) error {
	if len(w.held) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			return w.hold(data)
		}
		line := append(w.held, data[:end]...)
		w.held, data = line[:0], data[end:]
		if err := w.takeLines(line); err != nil {
			return err
		}
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	if w.inLine && end == 0 {
		end = len(data)
	}
	if err := w.takeLines(data[:end]); err != nil {
		return err
	}
	return w.hold(data[end:])
}

func (w *spoolWriter) hold(data []byte) error {
	w.held = append(w.held, data...)
	if len(w.held) < longestHeld {
		return nil
	}
	return w.takeHeld()
}

func (w *spoolWriter) takeHeld() error {
	line := w.held
	w.held = nil
	return w.takeLines(line)
}

// takeLines writes lines. The first may have begun earlier and the last may end later. It
// leaves out what exceeds the limit.
func (w *spoolWriter) takeLines(data []byte) error {
	from, at := 0, 0 // data[from:at] belongs to the current chunk and is not written yet
	for at < len(data) && !w.done() {
		if err := w.beginLine(); err != nil {
			return spoolFault(err)
		}
		line, _, ended := bytes.Cut(data[at:], newline)
		at += len(line)
		if ended {
			at++
		}
		w.blank = w.blank && len(bytes.Trim(line, " \t\r")) == 0
		if w.skip {
			from = at
		}
		if !ended {
			break
		}
		w.endLine()
		if length := w.current.Length + int64(at-from); w.current.Records >= w.spool.options.ChunkRecords || length >= spoolBytes {
			if err := w.write(data[from:at]); err != nil {
				return spoolFault(err)
			}
			from = at
			if err := w.cut(); err != nil {
				return err
			}
		}
	}
	return spoolFault(w.write(data[from:at]))
}

func spoolFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "spool input: %w", err)
}

// beginLine opens a spool file if the line is the first of a chunk.
func (w *spoolWriter) beginLine() error {
	if w.inLine {
		return nil
	}
	w.inLine, w.blank = true, true
	w.skip = w.seen < w.spool.options.Offset
	if w.skip || w.file != nil {
		return nil
	}
	path := filepath.Join(w.spool.options.Dir, fmt.Sprintf("spool-%06d.jsonl", w.number))
	file, err := files.Create(path, files.PrivateMode)
	if err != nil {
		return err
	}
	w.number++
	w.file, w.out = file, bufio.NewWriterSize(file, 256<<10)
	w.current = chunk.Chunk{File: path, First: w.seen, Line: w.line}
	w.lines = 0
	return nil
}

// endLine counts the line, if one was begun.
func (w *spoolWriter) endLine() {
	if !w.inLine {
		return
	}
	w.inLine = false
	w.line++
	if !w.blank {
		w.seen++
	}
	if w.skip {
		return
	}
	w.lines++
	if !w.blank {
		w.current.Records++
	}
}

func (w *spoolWriter) write(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	w.current.Length += int64(len(data))
	_, err := w.out.Write(data)
	return err
}

// cut closes the spool file and passes it on as a chunk.
func (w *spoolWriter) cut() error {
	if w.file == nil {
		return nil
	}
	if err := cmp.Or(w.out.Flush(), w.file.Close()); err != nil {
		return spoolFault(err)
	}
	c := w.current
	w.file, w.current = nil, chunk.Chunk{}
	w.spool.mu.Lock()
	w.spool.records += c.Records
	w.spool.unreleased[c.File] = c.Records
	w.spool.blank += w.lines - c.Records
	w.spool.mu.Unlock()
	if c.Records == 0 {
		_ = os.Remove(c.File) // otherwise Release or Close removes it
		return nil
	}
	select {
	case w.spool.chunks <- cut{chunk: c}:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// discard closes a file that an error left open.
func (w *spoolWriter) discard() {
	if w.file != nil {
		w.file.Close()
	}
}

func (s *spool) Next(ctx context.Context) (chunk.Chunk, error) {
	select {
	case c, ok := <-s.chunks:
		if !ok {
			return chunk.Chunk{}, io.EOF
		}
		return c.chunk, c.err
	case <-ctx.Done():
		return chunk.Chunk{}, ctx.Err()
	}
}

// Ready reports whether a chunk or the end of the stream is available.
func (s *spool) Ready() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return len(s.chunks) > 0
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

// Release counts records: a chunk may be released in pieces, and its file is removed with
// the last one.
func (s *spool) Release(c chunk.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreleased[c.File] -= c.Records; s.unreleased[c.File] <= 0 {
		delete(s.unreleased, c.File)
		_ = os.Remove(c.File)
	}
}

func (s *spool) Close() error {
	s.cancel()
	for range s.chunks { // until the writing goroutine exits
	}
	<-s.stopped
	return os.RemoveAll(s.options.Dir)
}
