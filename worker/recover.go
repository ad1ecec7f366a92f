package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// recover handles a failed batch. It first waits for the batches in flight after it:
// results that arrived are valid, and batches lost with a dead kernel are rerun one at a
// time, so that the blame is certain. Batches of the next chunk stay in flight as they are.
func (c *computing) recover(task *batchTask, err error) error {
	failure := fault.As(err)
	if failure == nil {
		return err // the context ended
	}
	flight := c.flight
	c.flight = nil
	outcomes := make([]error, len(flight))
	for i, other := range flight {
		began := time.Now()
		outcomes[i] = c.await(other)
		other.took = max(1, time.Since(began))
	}
	if lost(failure) {
		flight = slices.DeleteFunc(flight, func(other *batchTask) bool { return other.lane != task.lane })
		c.giveBack()
	}
	if err := c.rerun(task, failure); err != nil {
		return err
	}
	for i, other := range flight {
		if other.lane != task.lane {
			if len(c.loop.lanes) > 1 { // otherwise it was given back during a search
				c.flight = flight[i:]
			}
			break
		}
		if err := c.handleInFlight(other, outcomes[i]); err != nil {
			return err
		}
	}
	if err := c.finishGroup(task.lane); err != nil {
		return err
	}
	c.headSince = time.Now()
	return nil
}

// lost reports whether a batch failed by losing the kernel process.
func lost(e *fault.Error) bool {
	return e.Kind == fault.Crash || e.Kind == fault.Timeout || e.Sign == fault.HostMemory
}

// handleInFlight handles a batch that was in flight after a failed one of the same chunk.
func (c *computing) handleInFlight(task *batchTask, outcome error) error {
	l := task.lane
	if l.interrupted { // the chunk ended before this batch
		return nil
	}
	if len(l.groups) > 0 && l.groups[0].suspect >= 0 && task.group != l.groups[0] { // it will
		return nil
	}
	l.out.countBatch()
	if outcome == nil {
		return l.pass(task)
	}
	failure := fault.As(outcome)
	if failure != nil && (failure.Kind == fault.Crash || failure.Sign == fault.HostMemory) {
		failure = nil // collateral damage: it has not been tried on its own
	}
	return c.rerun(task, failure)
}

// finishGroup computes what remains before a record for another device, one batch at a
// time, and ends the chunk there.
func (c *computing) finishGroup(l *lane) error {
	for len(l.groups) > 0 && l.groups[0].suspect >= 0 && !l.interrupted {
		task := l.groups[0].next()
		if len(task.sent) == 0 {
			return l.endGroup()
		}
		if err := c.rerun(task, nil); err != nil {
			return err
		}
	}
	return nil
}

// giveBack gives assigned work back to other workers while a search restarts the kernel again
// and again: the next chunk and, if the orchestrator has asked for it, the rest of the
// current one.
func (c *computing) giveBack() {
	lanes := c.loop.lanes
	given := len(lanes) > 1
	if !given {
		select {
		case assign, more := <-c.worker.assigned:
			if given = more; given {
				_ = c.loop.begin(assign) // if it cannot be read, the next worker reports why
			}
		default:
		}
	}
	for _, l := range c.loop.lanes[1:] {
		_ = l.close(errGivenBack)
	}
	c.loop.lanes = lanes[:1]
	if given {
		c.worker.send(wire.Message{ReturnPrefetched: true})
	}
	c.obey(lanes[0], true)
}

var errGivenBack = errors.New("given back")

// await waits for a batch in flight after a failed one, and kills a kernel that hangs.
func (c *computing) await(task *batchTask) error {
	ctx, cancel := c.worker.stops.untilOverdue(c.loop.ctx)
	defer cancel()
	ctx, cancelWait := context.WithTimeout(ctx, c.worker.host.limit(task.load))
	defer cancelWait()
	err := task.results.Wait(ctx)
	if ctx.Err() != nil && c.loop.ctx.Err() == nil && fault.As(err) == nil {
		c.worker.host.kill()
		return fault.KernelTimeout.Of(fault.Crash, "kernel did not respond")
	}
	return err
}

// abandon ends the chunks before the batches in flight.
func (c *computing) abandon() error {
	c.worker.log.Warn("abandoned the batches in flight: the job is stopping and the drain timeout expired", "batches", len(c.flight))
	c.worker.host.kill()
	c.flight = nil
	for _, l := range c.loop.lanes {
		l.interrupt()
	}
	return nil
}
