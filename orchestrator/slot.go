package orchestrator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// slotRun keeps one slot busy: it starts a worker and gives it one chunk after another.
type slotRun struct {
	job         *job
	slot        Slot
	worker      *workerProcess
	loaded      []wire.Source // the files that its kernel has loaded
	poolKey     string        // of its worker
	starts      int
	budget      budget
	opened      bool
	probes      int             // how often a lost device was retried
	promised    bool            // the user was told that it will be, and the job waits for that
	useful      bool            // it has finished something since it was promised, or never was
	vain        int             // how often it was back and finished nothing
	left        bool            // it has left the job for good
	stuck       []proc.Stuck    // processes of its workers that cannot be killed
	current     *heldTask       // what the worker computes; nil between two tasks
	checkpoint  *checkpoint     // ends the part of current
	ahead       []*heldTask     // what it was given in addition, in order
	staggerDone func(open bool) // ends the turn that stagger gave
	threads     atomic.Int32    // the share of the cores that its worker must be restarted for; 0 for none
	dismissed   chan struct{}   // closed when the slot must leave
	dismissOnce sync.Once
}

func newSlotRun(j *job, slot Slot) *slotRun {
	return &slotRun{job: j, slot: slot, useful: true, dismissed: make(chan struct{})}
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
		if e := s.job.fleet.retiredBy(s.slot); e != nil && s.probes == 0 { // by another worker on its device
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
	if len(s.ahead) > 0 {
		next := s.ahead[0]
		s.ahead = s.ahead[1:]
		return next, true, nil
	}
	for {
		s.job.fleet.awaitPace(ctx, s.slot, s.job.queue.done)
		s.job.awaitResume(ctx)
		waiting := time.Now()
		t, ok, err := s.job.queue.take(ctx, s.slot.key(), s.slot.Number)
		if err != nil || !ok {
			return nil, ok, err
		}
		s.job.fleet.waited(s.slot, time.Since(waiting))
		if s.job.config.Control.paused() == nil {
			return s.assign(t), true, nil
		}
		s.job.queue.giveBack(t) // the job was paused while waiting for the task
	}
}

// awaitProbe waits until the device may be retried. It returns false if the job ends first:
// when no device is left, and none whose retry was promised.
func (s *slotRun) awaitProbe(ctx context.Context) bool {
	s.job.queue.retreat(s.slot.key(), s.promised)
	for {
		timer := time.NewTimer(probeAfter(s.job.config.firstProbe, s.probes+s.vain))
		s.probes++
		select {
		case <-timer.C:
			if heldBy(s.stuck) != nil || s.job.fleet.needsReset(s.slot) { // it would only be lost again
				s.job.queue.withdraw(s.promised)
				s.promised = false
				continue
			}
			s.job.queue.join(s.slot.key())
			s.job.queue.withdraw(s.promised)
			return true
		case <-s.job.queue.done:
		case <-s.dismissed:
			s.job.scaler.leaves(s)
			s.job.fleet.leave(s.slot)
			s.job.scaler.departed(s)
		case <-ctx.Done():
		}
		timer.Stop()
		return false
	}
}
