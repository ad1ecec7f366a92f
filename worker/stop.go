package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// stops is what the worker was asked to end. Chunks are counted as they are assigned, so
// that a request holds for the chunks assigned before it and for no other: an assignment
// that crosses it on the way must not revoke it.
type stops struct {
	assigned atomic.Int64 // chunks so far; the listener's
	until    atomic.Int64 // those up to this one end at the next batch border
	only     atomic.Int64 // so does the chunk with this first record, counted from 1

	halted  chan struct{} // closed when the job stops
	overdue chan struct{} // closed when the batches in flight have had their time
}

func newStops() *stops {
	return &stops{halted: make(chan struct{}), overdue: make(chan struct{})}
}

// assign notes that a chunk was assigned.
func (s *stops) assign(first int64) {
	s.assigned.Add(1)
	s.only.CompareAndSwap(first+1, 0) // another try
}

// take notes a request. It is called by one goroutine.
func (s *stops) take(request wire.Stop) {
	switch {
	case request.Only != nil:
		s.only.Store(*request.Only + 1)
		return
	case request.Job && !closed(s.halted):
		close(s.halted)
		if request.Drain > 0 {
			time.AfterFunc(request.Drain, func() { close(s.overdue) })
		}
	}
	s.until.Store(s.assigned.Load())
}

// giveBack ends the chunks up to this one, as a request would.
func (s *stops) giveBack(number int64) {
	s.until.Store(max(number, s.assigned.Load()))
}

// includes reports whether a chunk is to end at the next batch border.
func (s *stops) includes(run *chunkRun) bool {
	return closed(s.halted) || run.number <= s.until.Load() || s.only.Load() == run.first+1
}

// untilOverdue is a context that also ends when the job stops and the time for batches
// in flight is over.
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
