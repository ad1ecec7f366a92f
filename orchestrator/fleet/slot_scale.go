package fleet

import (
	"context"

	"github.com/gpurun/gpurun/internal/fault"
)

// Dismiss makes the slot leave the job at its worker's next batch boundary. It is safe to
// call from any goroutine.
func (s *slotRun) Dismiss() {
	s.dismissOnce.Do(func() { close(s.dismissed) })
	s.fleet.queue.dismiss(s.slot.Number)
	s.endChunk()
}

// mustLeave reports whether the slot was dismissed, or its device retired for the job.
func (s *slotRun) mustLeave() bool {
	select {
	case <-s.dismissed:
		return true
	default:
		return s.fleet.suspects.isSick(s.slot.Key())
	}
}

// Restart replaces the worker at its next batch boundary by one with another share of the
// cores. It is safe to call from any goroutine.
func (s *slotRun) Restart(threads int) {
	s.threads.Store(int32(threads))
	s.endChunk()
}

// endChunk asks the slot's worker, if there is one, to end its chunk.
func (s *slotRun) endChunk() {
	for _, w := range s.fleet.roster.workersWhere(func(m *member) bool { return m.slot.Number == s.slot.Number }) {
		w.EndChunk()
	}
}

// renew ends a worker that must be restarted, once it has finished its tasks.
func (s *slotRun) renew(ctx context.Context) {
	if len(s.hand.ahead) > 0 {
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
	s.fleet.scaler.Leaves(s.slot) // first, or a late report of another worker would cost one more
	s.fleet.roster.yield(s.slot)
	s.leave(ctx)
	s.reportLeft()
	s.fleet.scaler.Departed(s.slot)
}

// refuses reports whether the failure to open a kernel only means that the device gets no
// further worker: the others work.
func (s *slotRun) refuses(e *fault.Error) bool {
	if s.mustLeave() {
		return true
	}
	if s.opened || !s.slot.Added || !s.fleet.state.running() {
		return false
	}
	switch e.Kind {
	case fault.OOM, fault.Incompatible, fault.Crash, fault.Timeout, fault.Batch, fault.Record, fault.Usage, fault.Unknown:
		s.fleet.scaler.Refused(s.slot, e)
		return true
	}
	return false
}
