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
	flight := c.flight
	c.flight = nil
	outcomes := make([]error, len(flight))
	for i, other := range flight {
		began := time.Now()
		outcomes[i] = c.await(other)
		other.took = max(1, time.Since(began))
	}
	if lost(err) {
		flight = slices.DeleteFunc(flight, func(other *batchTask) bool { return other.run != task.run })
		c.share()
	}
	if err := task.run.isolate(task, err); err != nil {
		return err
	}
	for i, other := range flight {
		if other.run != task.run {
			if other.run == c.next { // otherwise it was given back during a search
				c.flight = flight[i:]
			}
			break
		}
		if err := other.run.handleInFlight(other, outcomes[i]); err != nil {
			return err
		}
	}
	if err := task.run.finishGroup(); err != nil {
		return err
	}
	c.headSince = time.Now()
	return nil
}

// lost reports whether a batch failed by losing the kernel process.
func lost(err error) bool {
	e := fault.As(err)
	return e != nil && (e.Kind == fault.Crash || e.Kind == fault.Timeout || e.Sign == fault.HostMemory)
}

// share gives assigned work back to other workers while a search restarts the kernel again
// and again: the next chunk and, if the orchestrator has asked for it, the rest of the
// current one.
func (c *computing) share() {
	next, given := c.next, c.next != nil
	c.next = nil
	if !given {
		select {
		case assign, more := <-c.worker.assigned:
			if given = more; given {
				next, _ = c.worker.begin(c.ctx, assign) // if it cannot be read, the next worker reports why
			}
		default:
		}
	}
	if next != nil {
		_, _ = next.close(errGivenBack)
	}
	if given {
		c.worker.send(wire.Message{ReturnPrefetched: &wire.ReturnPrefetched{}})
	}
	c.stopping(true)
}

var errGivenBack = errors.New("given back")

// await waits for a batch in flight after a failed one, and kills a kernel that hangs.
func (c *computing) await(task *batchTask) error {
	ctx, cancel := c.worker.stops.untilOverdue(c.ctx)
	defer cancel()
	ctx, cancelWait := context.WithTimeout(ctx, c.worker.host.limit(task.load))
	defer cancelWait()
	err := task.results.Wait(ctx)
	if ctx.Err() != nil && c.ctx.Err() == nil && fault.As(err) == nil {
		c.worker.host.kill()
		return fault.KernelTimeout.Of(fault.Crash, "kernel did not respond")
	}
	return err
}

// errOverdue: the job is stopping, and its drain timeout has expired.
var errOverdue = errors.New("the drain timeout has expired")

// abandon ends the chunk before the batches in flight: the job is stopping and their drain
// timeout has expired. The next run computes them.
func (c *computing) abandon() {
	c.worker.log.Warn("abandoned the batches in flight: the job is stopping and the drain timeout expired", "batches", len(c.flight))
	c.worker.host.kill()
	c.flight = nil
	c.current.interrupt()
}
