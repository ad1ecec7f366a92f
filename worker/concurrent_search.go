package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// suspicion is the search for the record that ends the kernel's process. All records that
// were at the kernel are suspects. They are sent again, and nothing else is, with half as
// many in flight each time the process is lost: in the end the record is alone. Answered
// records are never sent again.
//
// A suspect that is merely slow must not hold up the others: see [concurrent.outlived].
type suspicion struct {
	limit int // records in flight meanwhile; 0: there is no search
}

const (
	// A suspect that takes longer than this, and than patientTimes what answers usually take,
	// is probably slow.
	suspectPatience = time.Second
	patientTimes    = 4
)

// outlived reports whether the suspects at the kernel have been there for so long that they
// are probably slow, and not what ends the process: the search is over, and others may join
// them. That is assumed of a record once. If the process is lost with it again, the others
// wait until it is answered or has ended the process alone.
func (c *concurrent) outlived(now time.Time) bool {
	if c.usual == 0 {
		return false
	}
	patience := max(suspectPatience, patientTimes*c.usual)
	for _, f := range c.flights {
		if f.suspect && (f.trusted || now.Sub(f.started) < patience) {
			return false
		}
	}
	for _, f := range c.flights {
		f.trusted = f.trusted || f.suspect
		f.suspect = false
	}
	return true
}

// suspectsFly reports whether suspects are at the kernel.
func (c *concurrent) suspectsFly() bool {
	for _, f := range c.flights {
		if f.suspect {
			return true
		}
	}
	return false
}

// lose handles the loss of the process. first is the first record that landed by it.
func (c *concurrent) lose(first landing, failure *fault.Error) error {
	c.worker.host.kill() // it may still run, but must not be used
	suspects, err := c.landRest(first)
	if err != nil {
		return err
	}
	c.worker.log.Warn("the kernel was lost", "records in flight", len(suspects), "error", failure.Message)
	if c.blames(first) { // the others are not suspects
		for _, f := range suspects {
			f.group.lane.run.stats.Retries++
			c.enqueue(f)
		}
		return nil
	}
	for _, f := range c.queue {
		f.suspect = false
	}
	for _, f := range suspects {
		f.crashes++
	}
	if len(suspects) == 1 {
		return c.accuse(suspects[0], failure)
	}
	c.search.limit = max(1, len(suspects)/2)
	if !c.worker.host.computed { // it probably fails on everything: find out soon
		c.search.limit = 1
	}
	for _, f := range suspects {
		c.suspect(f)
	}
	return nil
}

// heardWithin is how long after a record should have been given up an answer must arrive to
// show that the kernel still works. Before that, it may have been on its way.
const heardWithin = time.Second

// blames reports whether a record alone is the reason to end the process: the kernel did not
// give it up, and answered others meanwhile. A kernel that answers nothing may hang because
// of any record.
func (c *concurrent) blames(l landing) bool {
	return errors.Is(l.answer.Err, plugins.ErrUnresponsive) && c.heard.After(l.flight.started.Add(l.limit+heardWithin))
}

// suspect queues a record that the process was lost with.
func (c *concurrent) suspect(f *flight) {
	f.suspect = true
	f.group.lane.run.stats.Retries++
	c.enqueue(f)
}

// landWait is how long the other records may take to land after the process was lost.
const landWait = 10 * time.Second

// landRest takes the landings of all records that were at the kernel. Those that have an
// answer are concluded, and those that are to blame fail; the others are returned.
func (c *concurrent) landRest(first landing) (suspects []*flight, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, landWait)
	defer cancel()
	for l := first; ; {
		if f := l.flight; c.flights[f.number] == f {
			delete(c.flights, f.number)
			var err error
			switch failure := l.failure(); {
			case c.blames(l):
				err = c.fail(f, failure)
			case l.lost(failure):
				suspects = append(suspects, f)
			default:
				err = c.conclude(l)
			}
			if err != nil {
				return nil, err
			}
		}
		if len(c.flights) == 0 {
			return suspects, nil
		}
		var arrived bool
		for l, arrived = c.nextArrived(); !arrived; l, arrived = c.nextArrived() {
			select {
			case <-c.landed.wake:
				c.arrived = c.landed.take(c.arrived)
			case <-ctx.Done():
				return nil, fault.New(fault.Worker, "%d records did not return from a kernel process that ended", len(c.flights))
			}
		}
		c.spend.add(l.answer)
	}
}

// accuse decides about a record that was alone when the process was lost. Once may be a
// coincidence, and a signal from outside needs more.
func (c *concurrent) accuse(f *flight, failure *fault.Error) error {
	f.alone++
	enough := 1
	if failure.Sign == fault.Outside {
		enough = outsideTries + 1
	}
	if f.crashes < 2 || f.alone < enough {
		c.search.limit = 1
		c.suspect(f)
		return nil
	}
	c.search.limit = 0
	if failure.Sign == fault.Outside {
		if c.outside++; c.outside > 1 {
			return fault.New(fault.Worker, "the kernel process is killed from outside, whatever it computes: %s", failure.Message).WithDetail(failure.Detail)
		}
	}
	if !c.worker.host.computed {
		c.deaths++
		c.search.limit = 1
	}
	if failure.Sign == fault.HostMemory {
		failure = outOfMemory("out of host memory, even alone in a fresh process", failure)
	}
	return c.fail(f, failure)
}

// shrink handles a record for which the device's memory did not suffice: it is sent again
// with fewer others from then on, and fails if it was alone.
func (c *concurrent) shrink(f *flight, failure *fault.Error) error {
	if len(c.flights) == 0 && c.ceiling == 1 {
		c.ceiling = c.worker.host.info.Concurrency // it was this record, not their number
		return c.fail(f, outOfMemory("out of device memory, even alone", failure))
	}
	c.ceiling = max(1, min(c.ceiling, len(c.flights)+1)/2)
	c.worker.log.Warn("a record did not fit in memory next to the others", "concurrency", c.ceiling, "error", failure.Message)
	f.group.lane.run.stats.Retries++
	c.enqueue(f)
	return nil
}

// unresponsive is the failure of a record that the kernel did not give up.
func unresponsive(limit time.Duration) *fault.Error {
	return fault.New(fault.Timeout, "the kernel did not respond in time").Set("timeout").
		WithDetail(fmt.Sprintf("gpurun waited %s for this record, and the kernel did not give it up", limit))
}

// expired returns the failure of a record that reached its limit. As in tooLong, the message
// must not vary between runs.
func (h *kernelHost) expired(limit time.Duration) *fault.Error {
	message := "the kernel did not answer in time"
	if h.limits.timeout > 0 {
		message = fmt.Sprintf("the kernel did not answer within %s", h.limits.timeout)
	}
	return fault.New(fault.Timeout, "%s", message).Set("timeout").
		WithDetail(fmt.Sprintf("gpurun waited %s for this record", limit))
}
