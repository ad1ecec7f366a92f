package orchestrator

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// task is a chunk with its history.
type task struct {
	chunk    chunk.Chunk
	attempts int          // workers that were lost with it
	last     *fault.Error // how the last one was
}

// queue is where slots pull their chunks: what came back first, then the source.
// It ends when the source has ended and nobody holds a task that could still
// come back.
type queue struct {
	source chunk.Source

	mu       sync.Mutex
	changed  *sync.Cond
	returned []task
	held     int
	reading  bool  // somebody waits for the source
	ended    bool  // the source has no more
	err      error // of the source
	closed   bool
	over     chan struct{} // closed when nobody will get anything any more
}

func newQueue(source chunk.Source) *queue {
	q := &queue{source: source, over: make(chan struct{})}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// take returns the next task. It returns false when there is none left, the
// queue was closed, or the source failed; the error says which.
func (q *queue) take(ctx context.Context) (task, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.closed || q.err != nil:
			return task{}, false, q.err
		case len(q.returned) > 0:
			t := q.returned[0]
			q.returned = q.returned[1:]
			q.held++
			return t, true, nil
		case q.ended && q.held == 0:
			return task{}, false, nil
		case !q.ended && !q.reading:
			q.read(ctx)
		default:
			q.changed.Wait()
		}
	}
}

// read asks the source with the lock given up: a stream may block.
func (q *queue) read(ctx context.Context) {
	q.reading = true
	q.mu.Unlock()
	c, err := q.source.Next(ctx)
	q.mu.Lock()
	q.reading = false
	switch {
	case err == nil:
		q.returned = append(q.returned, task{chunk: c})
	case errors.Is(err, io.EOF):
		q.ended = true
	case ctx.Err() != nil:
		q.closed = true
	default:
		q.err = fault.Wrap(fault.Storage, err)
	}
	q.tell()
}

// finish says that a task is done with, whatever came of it.
func (q *queue) finish() {
	q.mu.Lock()
	q.held--
	q.tell()
	q.mu.Unlock()
}

// giveBack returns a task for somebody else.
func (q *queue) giveBack(t task) {
	q.mu.Lock()
	q.held--
	q.returned = append(q.returned, t)
	q.tell()
	q.mu.Unlock()
}

// close lets nobody take anything any more.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.tell()
	q.mu.Unlock()
}

// tell wakes everybody after a change.
func (q *queue) tell() {
	q.changed.Broadcast()
	if q.closed || q.err != nil || q.ended && q.held == 0 && len(q.returned) == 0 {
		select {
		case <-q.over:
		default:
			close(q.over)
		}
	}
}

// whileOpen returns a context that ends with ctx, or when there is nothing to
// take any more: nobody needs to wait for a model to load then.
func (q *queue) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-q.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// unfinished reports whether there is work that nobody will do.
func (q *queue) unfinished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.ended || len(q.returned) > 0 || q.held > 0
}
