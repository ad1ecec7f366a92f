package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// slotRun keeps one slot busy: it opens a worker after another and gives each its tasks.
type slotRun struct {
	fleet       *Fleet
	slot        event.Slot
	member      *member
	session     *session // with its worker; nil if it has none
	losses      judge.Losses
	opened      bool
	back        comeback
	left        bool            // it has left the job for good
	staggerDone func(open bool) // ends the turn that stagger gave
	threads     atomic.Int32    // the share of the cores that its worker must be restarted for; 0 for none
	stays       context.Context // ends when the slot must leave
	dismiss     context.CancelFunc
}

// comeback is the hope for a slot whose device was lost.
type comeback struct {
	probes   int  // how often the device was retried
	vain     int  // how often it was back and finished nothing
	promised bool // the user was told that it will be retried, and the job waits for that
	useful   bool // it has finished something since it was promised, or never was
}

// after returns how long the device is left alone.
func (c *comeback) after(first time.Duration) time.Duration {
	return judge.ProbeAfter(first, c.probes+c.vain)
}

// run gives its workers tasks until none remain. The caller must then release the
// worker. It returns an error only for what must stop the whole job.
func (s *slotRun) run(ctx context.Context) error {
	for {
		retired, err := s.runUntilRetired(ctx)
		if err != nil || !retired {
			return err
		}
		if s.mustLeave() {
			s.depart(ctx)
			return nil
		}
		// The device is lost. It may come back while others compute.
		if !s.awaitProbe(ctx) {
			return nil
		}
	}
}

// runUntilRetired works until no tasks remain or the slot is retired.
func (s *slotRun) runUntilRetired(ctx context.Context) (retired bool, err error) {
	for {
		if s.mustLeave() {
			s.depart(ctx)
			return false, nil
		}
		if !s.session.hasTasks() { // otherwise a worker that must be restarted was told to end those at once
			if threads := s.threads.Swap(0); threads > 0 {
				s.slot.Threads = int(threads)
				s.release(ctx)
			}
		}
		if e := s.member.retiredBy(); e != nil && s.back.probes == 0 { // by another worker on its device
			s.drop()
			s.reportLoss(e, true)
			return true, nil
		}
		if s.session == nil {
			if e := s.open(ctx); e != nil {
				if s.refuses(e) {
					s.staggerDone(false)
					s.drop()
					s.depart(ctx)
					return false, nil
				}
				retired, err := s.handleLoss(ctx, nil, e, true)
				if err != nil {
					return false, err // and no other kernel is opened: the job ends
				}
				if s.staggerDone(false); retired {
					return true, nil
				}
				continue
			}
		}
		t, ok, err := s.nextTask(ctx)
		if err == nil && !ok && s.mustLeave() {
			continue
		}
		if err != nil || !ok {
			return false, err
		}
		if retired, err := s.session.run(ctx, t); err != nil || retired || s.left {
			return retired, err
		}
	}
}

// nextTask returns the worker's next task: one that it has, or the next from the queue. It
// returns false when none remains.
func (s *slotRun) nextTask(ctx context.Context) (*heldTask, bool, error) {
	if hand := &s.session.hand; len(hand.ahead) > 0 {
		next := hand.ahead[0]
		hand.ahead = hand.ahead[1:]
		return next, true, nil
	}
	for {
		s.awaitTurn(ctx)
		waiting := time.Now()
		t, ok, err := s.fleet.queue.Take(s.stays, s.slot.Key(), s.slot.Number)
		if err != nil || !ok {
			return nil, ok, err
		}
		s.member.waited(time.Since(waiting))
		if s.fleet.Paused() == nil {
			return s.session.assign(t), true, nil
		}
		s.fleet.queue.GiveBack(t) // the job was paused while waiting for the task
	}
}

// awaitTurn waits while the device or the job is paused and work remains.
func (s *slotRun) awaitTurn(ctx context.Context) {
	for _, paused := range []func() <-chan struct{}{s.member.paused, s.fleet.Paused} {
		for resumed := paused(); resumed != nil; resumed = paused() {
			select {
			case <-resumed:
			case <-s.fleet.queue.Open.Done():
				return
			case <-s.stays.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// awaitProbe waits until the device may be retried. It returns false if the job ends first:
// when no device is left, and none whose retry was promised.
func (s *slotRun) awaitProbe(ctx context.Context) bool {
	s.fleet.queue.Retreat(s.slot.Key(), s.back.promised)
	for {
		timer := time.NewTimer(s.back.after(s.fleet.FirstProbe))
		s.back.probes++
		select {
		case <-timer.C:
			if s.member.heldBy() != nil || s.member.needsReset() { // it would only be lost again
				s.fleet.queue.Withdraw(s.back.promised)
				s.back.promised = false
				continue
			}
			s.fleet.queue.Join(s.slot.Key())
			s.fleet.queue.Withdraw(s.back.promised)
			return true
		case <-s.fleet.queue.Open.Done():
		case <-s.stays.Done():
			s.fleet.queue.Withdraw(s.back.promised)
			s.fleet.scaler.Leaves(s.slot)
			s.member.leave(false)
			s.fleet.scaler.Departed(s.slot)
		case <-ctx.Done():
		}
		timer.Stop()
		return false
	}
}

// Dismiss makes the slot leave the job at its worker's next batch boundary. It is safe to
// call from any goroutine.
func (s *slotRun) Dismiss() {
	s.dismiss()
	s.member.endChunk()
}

// mustLeave reports whether the slot was dismissed, or its device retired for the job.
func (s *slotRun) mustLeave() bool {
	return s.stays.Err() != nil || s.fleet.suspects.isSick(s.slot.Key())
}

// Restart replaces the worker at its next batch boundary by one with another share of the
// cores. It is safe to call from any goroutine.
func (s *slotRun) Restart(threads int) {
	s.threads.Store(int32(threads))
	s.member.endChunk()
}

// idles reports whether the worker should not get more work for now.
func (s *slotRun) idles() bool {
	return s.member.paused() != nil || s.mustLeave() || s.threads.Load() > 0 || !s.fleet.state.running() || s.fleet.Paused() != nil
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

// depart ends the slot's worker and removes the slot from the job.
func (s *slotRun) depart(ctx context.Context) {
	s.release(ctx)
	s.fleet.scaler.Leaves(s.slot) // first, or a late report of another worker would cost one more
	s.leave(ctx, true)
	s.fleet.reportLeft(s.slot)
	s.fleet.scaler.Departed(s.slot)
}

// leave removes the slot from the job. yields: it still has its slot in the registry. The caller
// must report it, after the results of its worker.
func (s *slotRun) leave(ctx context.Context, yields bool) {
	s.left = true
	s.release(ctx)
	s.member.leave(yields)
	if !yields {
		s.fleet.Registry.Exited(s.slot.Key())
	}
	s.fleet.ledger.excuse(s.slot.Number, true)
	s.fleet.queue.Leave(s.slot.Key())
}

// drop makes sure that the worker has exited.
func (s *slotRun) drop() {
	if s.session == nil {
		return
	}
	worker := s.session.worker
	worker.Kill()
	s.member.exited(worker.CPU(), worker.Stuck)
	s.session.giveBackAhead(true)
	s.session = nil
}

// release ends the slot's worker, gracefully unless the job is aborted.
func (s *slotRun) release(ctx context.Context) {
	if s.session == nil {
		return
	}
	if ctx.Err() == nil && !s.session.hasTasks() { // or it would compute those first
		warnings, why := s.session.worker.End()
		s.fleet.notices.warn(s.slot, warnings)
		if why != nil {
			s.fleet.state.stop(why)
			s.fleet.queue.Close()
		}
	}
	s.drop()
}
