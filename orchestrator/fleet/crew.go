package fleet

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// crew are the goroutines that run a job's slots, and the fleet as its scaler sees it.
type crew struct {
	fleet *Fleet
	group *errgroup.Group
	ctx   context.Context // of the group
	slots sync.WaitGroup  // those with work left, and the scaler, which may add some
}

// startAll starts the slots of the plan, and the scaler.
func (c *crew) startAll(slots []event.Slot) {
	f := c.fleet
	for _, slot := range slots {
		f.queue.Join(slot.Key())
	}
	for i, slot := range slots {
		f.scaler.Started(slot, c.start(f.roster.members[i]))
	}
	c.slots.Go(func() { f.scaler.Run(c.ctx) })
}

// start runs a slot until no work remains for it.
func (c *crew) start(m *member) *slotRun {
	run := &slotRun{fleet: c.fleet, slot: m.slot, member: m, back: comeback{useful: true}}
	run.stays, run.dismiss = context.WithCancel(context.WithoutCancel(c.ctx))
	c.slots.Add(1)
	c.group.Go(func() error {
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

// Add starts a slot while the job runs, if the registry has a place for it.
func (c *crew) Add(slot event.Slot) (event.Slot, scaler.Worker, bool) {
	if _, ok := c.fleet.Registry.Acquire(slot.Key()); !ok {
		return slot, nil, false
	}
	m := c.fleet.roster.join(slot)
	c.Share(slot.SharesDevice, slot.Devices[0].Kind != gpu.CPU)
	c.fleet.queue.Join(slot.Key())
	return m.slot, c.start(m), true
}

func (c *crew) Work(of func(event.Slot) bool) scaler.Work {
	w := c.fleet.roster.work(of)
	w.Unsteady = w.Unsteady || c.fleet.Paused() != nil
	return w
}

func (c *crew) Progress() (done, total int64) {
	return c.fleet.ledger.done().Records, c.fleet.ledger.total()
}

func (c *crew) Health(device string) (gpu.Health, bool)    { return c.fleet.monitor.health(device) }
func (c *crew) Sample()                                    { c.fleet.monitor.monitor.Hurry() }
func (c *crew) IsSick(device string) bool                  { return c.fleet.suspects.isSick(device) }
func (c *crew) Done() <-chan struct{}                      { return c.fleet.queue.Open.Done() }
func (c *crew) Share(of func(event.Slot) bool, added bool) { c.fleet.roster.setSharing(of, added) }

func (c *crew) Hungry() bool {
	_, dry := c.fleet.queue.Idle()
	return !dry && c.fleet.state.running()
}
