package orchestrator

import (
	"context"

	"github.com/gpurun/gpurun/internal/fault"
)

// dismiss makes the slot leave the job at its worker's next batch boundary. It is safe to
// call from any goroutine.
func (s *slotRun) dismiss() {
	s.dismissOnce.Do(func() { close(s.dismissed) })
	s.job.queue.dismiss(s.slot.Number)
	s.endChunk()
}

// mustLeave reports whether the slot was dismissed, or its device retired for the job.
func (s *slotRun) mustLeave() bool {
	select {
	case <-s.dismissed:
		return true
	default:
		return s.job.suspects.isSick(s.slot.key())
	}
}

// restart replaces the worker at its next batch boundary by one with another share of the
// cores. It is safe to call from any goroutine.
func (s *slotRun) restart(threads int) {
	s.threads.Store(int32(threads))
	s.endChunk()
}

// endChunk asks the slot's worker, if there is one, to end its chunk.
func (s *slotRun) endChunk() {
	for _, w := range s.job.fleet.workersWhere(func(m *member) bool { return m.slot.Number == s.slot.Number }) {
		w.endChunk()
	}
}

// renew ends a worker that must be restarted, once it has finished its tasks.
func (s *slotRun) renew(ctx context.Context) {
	if len(s.ahead) > 0 {
		return // it has been told to end that at once
	}
	if threads := s.threads.Swap(0); threads > 0 {
		s.slot.Threads = int(threads)
		s.release(ctx)
	}
}

// depart ends the slot's worker and removes the slot from the job.
func (s *slotRun) depart(ctx context.Context) {
	s.release(ctx)
	s.job.scaler.leaves(s) // first, or a late report of another worker would cost one more
	s.job.fleet.yield(s.slot)
	s.leave(ctx)
	s.reportLeft()
	s.job.scaler.departed(s)
}

// refuses reports whether the failure to open a kernel only means that the device gets no
// further worker: the others work.
func (s *slotRun) refuses(e *fault.Error) bool {
	if s.mustLeave() {
		return true
	}
	if s.opened || !s.slot.added || !s.job.state.running() {
		return false
	}
	switch e.Kind {
	case fault.OOM, fault.Incompatible, fault.Crash, fault.Timeout, fault.Batch, fault.Record, fault.Usage, fault.Unknown:
		s.job.scaler.refused(s.slot, e)
		return true
	}
	return false
}
