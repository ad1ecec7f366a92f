package worker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/early"
)

// flight is a record that was or will be sent to a concurrent kernel.
type flight struct {
	number int64
	record plugins.Record
	group  *group // what the record belongs to
	at     int    // its position there

	sent      bool
	fileBytes int // of its files, as its group counts them
	started   time.Time
	round     int       // of the window, in which it was sent
	retries   int       // attempts that the kernel asked for
	due       time.Time // when the next one may begin

	suspect bool
	trusted bool // as a suspect, it was taken to be slow
	crashes int  // how often the process was lost with it
	alone   int  // how often it was then the only one
}

// landing is the end of a flight.
type landing struct {
	flight  *flight
	answer  plugins.Answer
	expired bool // the record reached its time limit
	limit   time.Duration
	took    time.Duration
}

// landings are flights that have ended and are not taken yet.
type landings struct {
	wake chan struct{} // signals add
	mu   sync.Mutex
	list []landing
}

func (l *landings) add(one landing) {
	l.mu.Lock()
	l.list = append(l.list, one)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// take appends all of them to a list.
func (l *landings) take(to []landing) []landing {
	l.mu.Lock()
	defer l.mu.Unlock()
	to = append(to, l.list...)
	clear(l.list)
	l.list = l.list[:0]
	return to
}

// capacity returns how many records may be at the kernel now.
func (c *concurrent) capacity() int {
	if c.window.Pause(time.Now()) > 0 {
		return 0
	}
	n := min(c.ceiling, c.window.Limit())
	switch share := c.worker.pace.share(); {
	case share <= 0:
		return 0
	case share < 1:
		n = min(n, max(1, int(share*float64(c.worker.host.info.Concurrency))))
	}
	if c.search.limit > 0 {
		n = min(n, c.search.limit)
	}
	return n
}

// feed sends records until the kernel has as many as it may.
func (c *concurrent) feed() error {
	if len(c.lanes) == 0 {
		return nil
	}
	if c.worker.host.process != nil && c.lanes[0].run.dead() {
		if len(c.flights) > 0 {
			return nil // they land first, with the cause
		}
		c.worker.host.kill()
	}
	c.queueDue(time.Now())
	for {
		f := c.nextFlight()
		if f == nil || len(c.flights) >= c.capacity() || c.spend.reached() {
			return nil
		}
		if c.worker.host.process == nil {
			if open, err := c.reopen(); !open {
				return err
			}
		}
		if !c.spend.take() {
			return nil
		}
		c.send(f)
	}
}

// nextFlight returns the next record to send, or nil if there is none: suspects alone while
// a search lasts, then those that were sent before, then new ones.
func (c *concurrent) nextFlight() *flight {
	if c.search.limit > 0 {
		flying := c.suspectsFly()
		next := slices.IndexFunc(c.queue, func(f *flight) bool { return f.suspect && !f.group.lane.halted })
		switch {
		case flying && c.outlived(time.Now()):
		case next >= 0:
			return c.queue[next]
		case flying:
			return nil
		}
		c.search.limit = 0
	}
	if f := c.nextAgain(); f != nil {
		return f
	}
	if c.holds() {
		return nil
	}
	for _, f := range c.ready {
		if !f.group.lane.halted {
			return f
		}
	}
	for _, l := range c.lanes {
		if l.ended || l.halted {
			continue
		}
		if f := l.nextUnsent(); f != nil {
			return f
		}
	}
	return nil
}

// send sends a record to the kernel.
func (c *concurrent) send(f *flight) {
	isThis := func(other *flight) bool { return other == f }
	c.queue, c.ready = without(c.queue, isThis), without(c.ready, isThis)
	host := c.worker.host
	limit := host.limit(load{records: 1, bytes: f.record.Size()})
	f.sent, f.started, f.round = true, time.Now(), c.window.Round()
	c.flights[f.number] = f
	landed, started := c.landed, f.started
	host.process.Ask(f.record, limit, func(a plugins.Answer, expired bool) {
		landed.add(landing{flight: f, answer: a, expired: expired, limit: limit, took: time.Since(started)})
	})
	crash.Point("worker-mid-batch")
}

// reopen starts the kernel. If it returns false, there is none; the error is nil if the job
// is stopping and its drain timeout has expired.
func (c *concurrent) reopen() (open bool, err error) {
	ctx, cancel := c.worker.stops.untilOverdue(c.ctx)
	defer cancel()
	c.lanes[0].run.stats.Restarts++
	if _, err = c.worker.host.alive(ctx); err != nil && closed(c.worker.stops.overdue) {
		return false, c.abandon()
	}
	return err == nil, err
}

// land takes the answer for a record.
func (c *concurrent) land(l landing) error {
	f := l.flight
	c.spend.add(l.answer)
	if c.flights[f.number] != f {
		return nil // it was abandoned
	}
	if failure := l.failure(); l.lost(failure) {
		return c.lose(l, failure)
	}
	delete(c.flights, f.number)
	c.heard = time.Now()
	return c.conclude(l)
}

// lost reports whether the record landed because the process was lost, or must be ended.
func (l *landing) lost(failure *fault.Error) bool {
	return failure != nil && (failure.Kind == fault.Crash || failure.Sign == fault.HostMemory) || errors.Is(l.answer.Err, plugins.ErrUnresponsive)
}

// failure returns why the record failed, or nil.
func (l *landing) failure() *fault.Error {
	switch {
	case l.answer.Verdict != plugins.Failed:
		return nil
	case errors.Is(l.answer.Err, plugins.ErrUnresponsive):
		return unresponsive(l.limit)
	case l.answer.Err != nil:
		return fault.As(fault.Wrap(fault.Batch, l.answer.Err)).Bounded()
	}
	e := fault.Error{Kind: fault.Record, Message: l.answer.Message, Detail: l.answer.Detail}
	return e.Bounded()
}

// conclude decides what an answer means for its record, which is down.
func (c *concurrent) conclude(l landing) error {
	f, failure := l.flight, l.failure()
	c.slowDown(l, failure)
	if failure == nil || failure.Kind != fault.Stopped { // that ends the job, not the wait
		c.hold(l)
	}
	switch {
	case l.answer.Verdict == plugins.Later:
		return c.later(f, l.answer)
	case l.answer.Verdict == plugins.Retry:
		return c.retry(f, l.answer)
	case failure == nil:
		return c.succeed(l)
	case l.expired && failure.Kind != fault.Record && failure.Kind != fault.Timeout:
		return c.fail(f, c.worker.host.expired(l.limit))
	case failure.Kind == fault.OOM:
		return c.shrink(f, failure)
	case failure.Kind == fault.Device && failure.Sign == fault.Text && f.group.lane.run.blame:
		failure = failure.Signed("")
		failure.Kind = fault.Batch
	case noRecords(failure):
		return failure
	}
	return c.fail(f, failure)
}

// succeed logs an answer and settles its record.
func (c *concurrent) succeed(l landing) error {
	f, a := l.flight, l.answer
	c.worker.host.good(l.took, load{records: 1, bytes: max(1, f.record.Size())})
	c.outside, c.deaths = 0, 0
	c.usual += (l.took - c.usual) / usualShare
	if err := logAnswer(l, (*early.Log).Add); err != nil {
		return err
	}
	crash.Point("worker-answered")
	c.judge(nil)
	return c.settle(f, answered(a), l.took)
}

// usualShare is the share of one answer in the time that answers usually take.
const usualShare = 16

// logAnswer logs the answer for a record that succeeds, unless it is logged.
func logAnswer(l landing, add func(*early.Log, int64, early.Answer) error) error {
	log := l.flight.group.lane.log
	if log.Has(l.flight.number) {
		return nil
	}
	a := l.answer
	return fault.Wrap(fault.Storage, add(log, l.flight.number, early.Answer{Verdict: uint8(a.Verdict), Lines: a.Lines, Nulls: a.Nulls}))
}

// fail settles a record that failed.
func (c *concurrent) fail(f *flight, failure *fault.Error) error {
	c.worker.log.Warn("record failed", "record", f.number, "kind", failure.Kind, "error", failure.Message)
	c.judge(failure)
	return c.settle(f, verdict{fault: failure}, 0)
}

// settle gives a record its verdict.
func (c *concurrent) settle(f *flight, v verdict, took time.Duration) error {
	f.suspect = false
	c.worker.computed.Add(1)
	f.group.settle(f.at, v)
	if took > 0 {
		f.group.task.batches = append(f.group.task.batches, took)
	}
	return c.complete(f.group)
}

// enqueue adds a record to those that are sent again, in input order.
func (c *concurrent) enqueue(f *flight) { c.queue = insert(c.queue, f) }

func without(list []*flight, drop func(*flight) bool) []*flight {
	return slices.DeleteFunc(list, drop)
}

// answered is the verdict of an answer that settles its record.
func answered(a plugins.Answer) verdict { return verdict{results: a.Results()} }
