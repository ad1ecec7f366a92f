package orchestrator

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// crew are the goroutines that run a job's slots.
type crew struct {
	job     *job
	group   *errgroup.Group
	ctx     context.Context // of the group
	slots   sync.WaitGroup  // those with work left, and the scaler, which may add some
	workers sync.WaitGroup  // those whose worker has not exited
}

// startAll starts the slots of the plan, and the scaler if the job has one.
func (c *crew) startAll(slots []Slot) {
	j := c.job
	for _, slot := range slots {
		j.queue.join(slot.key())
	}
	for _, slot := range slots {
		j.scaler.started(c.start(slot))
	}
	if j.scaler != nil {
		j.scaler.start = c.start
		c.slots.Go(func() { j.scaler.run(c.ctx) })
	}
}

// start runs a slot until no work remains for it.
func (c *crew) start(slot Slot) *slotRun {
	run := newSlotRun(c.job, slot)
	c.slots.Add(1)
	c.workers.Add(1)
	c.group.Go(func() error {
		defer c.workers.Done()
		defer func() {
			if c.ctx.Err() != nil || !run.park() {
				run.release(c.ctx)
			}
		}()
		defer c.slots.Done()
		return run.run(c.ctx)
	})
	return run
}
