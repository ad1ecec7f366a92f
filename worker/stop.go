package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// stops holds the stop requests that the worker has received. It counts chunks as they are
// assigned, so that a request covers exactly the chunks assigned before it: an assignment
// that crosses a request in transit must not revoke it.
type stops struct {
	assigned  atomic.Int64 // number of chunks assigned; only the listener changes it
	lastChunk atomic.Int64 // chunks up to this number end after the current batch
	shared    atomic.Int64 // chunks up to this number hand back what they have not begun
	cut       atomic.Int64 // first record + 1 of the chunk whose part ends; 0: none

	jobStopped chan struct{} // closed when the job stops
	overdue    chan struct{} // closed when the drain timeout for batches in flight expires
}

func newStops() *stops {
	return &stops{jobStopped: make(chan struct{}), overdue: make(chan struct{})}
}

// assign records that a chunk was assigned.
func (s *stops) assign(first int64) {
	s.assigned.Add(1)
	s.cut.CompareAndSwap(first+1, 0) // the chunk is being tried again
}

// request records a request. Only one goroutine may call it.
func (s *stops) request(of wire.Stop) {
	switch {
	case of.Only != nil:
		s.cut.Store(*of.Only + 1)
		return
	case of.Share:
		s.shared.Store(s.assigned.Load())
		return
	case of.Job && !closed(s.jobStopped):
		close(s.jobStopped)
		if of.Drain > 0 {
			time.AfterFunc(of.Drain, func() { close(s.overdue) })
		}
	}
	s.lastChunk.Store(s.assigned.Load())
}

// endThrough ends the chunks up to this one, as a request would.
func (s *stops) endThrough(number int64) {
	s.lastChunk.Store(max(number, s.assigned.Load()))
}

// mustEnd reports whether a chunk must end after the current batch.
func (s *stops) mustEnd(l *lane) bool {
	return closed(s.jobStopped) || l.number <= s.lastChunk.Load()
}

// mustCut reports whether the part of a chunk must end, and its records in flight may go on: a
// checkpoint.
func (s *stops) mustCut(l *lane) bool {
	return s.cut.Load() == l.out.assign.Chunk.First+1 && !s.mustEnd(l)
}

// forget drops the request to end a part, which the worker has met.
func (s *stops) forget(l *lane) { s.cut.CompareAndSwap(l.out.assign.Chunk.First+1, 0) }

// mustShare reports whether a chunk must hand back what it has not begun.
func (s *stops) mustShare(l *lane) bool { return l.number <= s.shared.Load() }

// untilOverdue returns a context that also ends when the job is stopping and the drain
// timeout for batches in flight expires.
func (s *stops) untilOverdue(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.overdue:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
