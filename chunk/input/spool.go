package input

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
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
