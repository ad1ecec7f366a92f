package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
)

// slotRun keeps one slot busy: it starts a worker and gives it one chunk after another.
type slotRun struct {
	fleet       *Fleet
	slot        event.Slot
	worker      *process.Worker
	loaded      []wire.Source // the files that its kernel has loaded
	poolKey     string        // of its worker
	starts      int
	losses      judge.Losses
	opened      bool
	probes      int             // how often a lost device was retried
	promised    bool            // the user was told that it will be, and the job waits for that
	useful      bool            // it has finished something since it was promised, or never was
	vain        int             // how often it was back and finished nothing
	left        bool            // it has left the job for good
	stuck       []proc.Stuck    // processes of its workers that cannot be killed
	hand        hand            // what its worker has
	checkpoint  *checkpoint     // ends the part of the current task
	staggerDone func(open bool) // ends the turn that stagger gave
	threads     atomic.Int32    // the share of the cores that its worker must be restarted for; 0 for none
	dismissed   chan struct{}   // closed when the slot must leave
	dismissOnce sync.Once
}

func newSlotRun(f *Fleet, slot event.Slot) *slotRun {
	return &slotRun{fleet: f, slot: slot, hand: hand{lane: f.Lane}, useful: true, dismissed: make(chan struct{})}
}

// run gives its worker tasks until none remain. The caller must then release the
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
		s.renew(ctx)
		if e := s.fleet.roster.retiredBy(s.slot); e != nil && s.probes == 0 { // by another worker on its device
			s.drop()
			s.reportLoss(e, true)
			return true, nil
		}
		if s.worker == nil {
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
		if retired, err := s.runTask(ctx, t); err != nil || retired || s.left {
			return retired, err
		}
	}
}

// nextTask returns the worker's next task: one that it has, or the next from the queue. It
// returns false when none remains.
func (s *slotRun) nextTask(ctx context.Context) (*heldTask, bool, error) {
	if len(s.hand.ahead) > 0 {
		next := s.hand.ahead[0]
		s.hand.ahead = s.hand.ahead[1:]
		return next, true, nil
	}
	for {
		s.fleet.roster.awaitPace(ctx, s.slot, s.fleet.queue.done)
		s.fleet.awaitResume(ctx)
		waiting := time.Now()
		t, ok, err := s.fleet.queue.take(ctx, s.slot.Key(), s.slot.Number)
		if err != nil || !ok {
			return nil, ok, err
		}
		s.fleet.roster.waited(s.slot, time.Since(waiting))
		if s.fleet.Paused() == nil {
			return s.assign(t), true, nil
		}
		s.fleet.queue.giveBack(t) // the job was paused while waiting for the task
	}
}

// awaitProbe waits until the device may be retried. It returns false if the job ends first:
// when no device is left, and none whose retry was promised.
func (s *slotRun) awaitProbe(ctx context.Context) bool {
	s.fleet.queue.retreat(s.slot.Key(), s.promised)
	for {
		timer := time.NewTimer(judge.ProbeAfter(s.fleet.FirstProbe, s.probes+s.vain))
		s.probes++
		select {
		case <-timer.C:
			if heldBy(s.stuck) != nil || s.fleet.roster.needsReset(s.slot) { // it would only be lost again
				s.fleet.queue.withdraw(s.promised)
				s.promised = false
				continue
			}
			s.fleet.queue.join(s.slot.Key())
			s.fleet.queue.withdraw(s.promised)
			return true
		case <-s.fleet.queue.done:
		case <-s.dismissed:
			s.fleet.scaler.Leaves(s.slot)
			s.fleet.roster.leave(s.slot)
			s.fleet.scaler.Departed(s.slot)
		case <-ctx.Done():
		}
		timer.Stop()
		return false
	}
}
