package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/congestion"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

const (
	// firstWait is the wait before the first of the attempts that a kernel asks for, and
	// longestWait the longest that gpurun chooses. A kernel may ask for more.
	firstWait   = time.Second
	longestWait = time.Minute
	// jitter is the share of a wait that is left to chance, so that records which failed
	// together do not come back together.
	jitter = 0.25
)

// backOff returns how long to wait before attempt n, counted from 1. after is what the kernel
// asks for, 0 if it does not say. chance is between 0 and 1.
func backOff(n int, after time.Duration, chance float64) time.Duration {
	if after <= 0 {
		after = min(longestWait, firstWait<<min(max(n-1, 0), 16))
	}
	return after + time.Duration(chance*jitter*float64(after))
}

// retry lets a record wait for another attempt, without a place at the kernel, or fails it
// if its attempts are used up.
func (c *concurrent) retry(f *flight, a plugins.Answer) error {
	f.suspect = false
	if f.retries >= c.worker.setup.Retries {
		message := a.Message
		if message == "" {
			message = "the kernel asked for another attempt"
		}
		return c.fail(f, fault.New(fault.Record, "gave up after %s: %s", attempts(f.retries+1), message).WithDetail(a.Detail).Bounded())
	}
	f.retries++
	f.group.lane.run.stats.Retries++
	if a.After > 0 { // the window holds it back with all others, by chance a little longer
		f.due = time.Now().Add(a.After)
		c.wait(f)
	} else {
		c.defers(f, f.retries, 0)
	}
	return nil
}

// later lets a record wait that the kernel could not try.
func (c *concurrent) later(f *flight, a plugins.Answer) error {
	f.suspect = false
	c.defers(f, 1, a.After)
	return nil
}

// defers lets a record wait for attempt n.
func (c *concurrent) defers(f *flight, n int, after time.Duration) {
	f.due = time.Now().Add(backOff(n, after, rand.Float64()))
	c.wait(f)
}

// slowDown reacts to what an answer shows about the server behind the kernel. A kernel that asks
// for a wait reports that the server has too much to do: the worker then sends no record for that
// time, and fewer at a time from then on.
func (c *concurrent) slowDown(l landing, failure *fault.Error) {
	outcome, after := congestion.Other, time.Duration(0)
	switch {
	case l.answer.Verdict == plugins.Later:
	case l.answer.Verdict == plugins.Retry:
		if l.answer.After > 0 {
			outcome, after = congestion.Refused, backOff(1, l.answer.After, rand.Float64())
		}
	case failure == nil || failure.Kind == fault.Record:
		outcome = congestion.Served
	}
	c.window.Ended(l.flight.round, outcome, after, time.Now())
}

// nextAgain returns the next record that was sent before, or nil if there is none. While the
// server refuses everything, that is the one with the most attempts left, so that no record uses
// up its attempts for all others.
func (c *concurrent) nextAgain() (next *flight) {
	refusals, _ := c.window.Refusals(time.Now())
	for _, f := range c.queue {
		if f.group.lane.halted || next != nil && f.retries >= next.retries {
			continue
		}
		if next = f; refusals == 0 {
			break
		}
	}
	return next
}

// longPause is the shortest pause that is reported.
const longPause = 5 * time.Second

// pauses returns why no record is sent for a long time, or nothing.
func (c *concurrent) pauses(a plugins.Answer) string {
	pause := c.window.Pause(time.Now())
	switch {
	case a.Verdict == plugins.Later:
		return a.Message
	case pause < longPause || a.Verdict != plugins.Retry:
		return ""
	case a.Message == "":
		return fmt.Sprintf("the kernel asks for a pause; the next record follows in %s", pause.Round(time.Second))
	}
	return fmt.Sprintf("the kernel asks for a pause (%s); the next record follows in %s", a.Message, pause.Round(time.Second))
}

// hold follows whether the kernel can try records. An answer shows it, unless its record was sent
// before this last changed.
func (c *concurrent) hold(l landing) {
	why := c.pauses(l.answer)
	holding := why != "" || l.answer.Verdict == plugins.Later || c.holding && c.window.Pause(time.Now()) >= longPause
	if holding == c.holding || holding && why == "" || l.flight.started.Before(c.holdingSet) {
		return
	}
	c.holding, c.holdingSet = holding, time.Now()
	if holding {
		c.worker.log.Warn("no record can be tried for now", "reason", why)
	} else {
		c.worker.log.Info("records can be tried again")
	}
	c.worker.send(wire.Message{Holding: &wire.Holding{Why: why}})
}

// holds reports whether new records must wait until one that was answered with Later has
// been tried again.
func (c *concurrent) holds() bool {
	return c.holding && len(c.flights)+len(c.queue)+len(c.waiting) > 0
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

// wait adds a record to those that wait, the first due first.
func (c *concurrent) wait(f *flight) {
	at, _ := slices.BinarySearchFunc(c.waiting, f.due, func(other *flight, due time.Time) int { return other.due.Compare(due) })
	c.waiting = slices.Insert(c.waiting, at, f)
}

// queueDue queues the records whose wait is over.
func (c *concurrent) queueDue(now time.Time) {
	for len(c.waiting) > 0 && !c.waiting[0].due.After(now) {
		f := c.waiting[0]
		c.waiting = c.waiting[1:]
		f.due = time.Time{}
		c.enqueue(f)
	}
}
