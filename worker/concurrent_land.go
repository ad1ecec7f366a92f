package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/early"
)

// land takes all answers that have arrived, to log them together and to send the next records
// together.
func (c *concurrent) land() error {
	if err := c.logArrived(); err != nil {
		return err
	}
	for len(c.arrived) > 0 {
		l := c.takeArrived()
		if !c.records.flies(l.flight) {
			continue // it was abandoned
		}
		var err error
		if failure := l.failure(); l.lost(failure) {
			err = c.lose(l, failure)
		} else {
			c.search.heard = time.Now()
			err = c.conclude(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeArrived takes the next answer that has arrived.
func (c *concurrent) takeArrived() landing {
	l := c.arrived[0]
	c.arrived = c.arrived[1:]
	c.spend.add(l.answer)
	return l
}

// logArrived takes the answers that have arrived, and logs those of records that succeed together.
func (c *concurrent) logArrived() error {
	c.arrived = append(c.arrived, c.landed.takeAll()...)
	for _, l := range c.arrived {
		f, a := l.flight, l.answer
		log := f.group.lane.log
		if !c.records.flies(f) || a.Verdict >= plugins.Failed || log.Has(f.number) {
			continue
		}
		if err := log.Put(f.number, early.Answer{Verdict: uint8(a.Verdict), Lines: a.Lines, Nulls: a.Nulls}); err != nil {
			return fault.JobFiles.Wrap(err)
		}
	}
	for _, l := range c.loop.lanes {
		if err := l.log.Flush(); err != nil {
			return fault.JobFiles.Wrap(err)
		}
	}
	return nil
}

// conclude handles the answer of a record that is no longer in flight.
func (c *concurrent) conclude(l landing) error {
	f, a, failure := l.flight, l.answer, l.failure()
	delete(c.records.flying, f.number)
	if why, changed := c.throttle.follow(l, failure, time.Now()); changed {
		if why != "" {
			c.worker.log.Warn("no record can be tried for now", "reason", why)
		} else {
			c.worker.log.Info("records can be tried again")
		}
		c.worker.send(wire.Message{Holding: &wire.Holding{Why: why}})
	}
	switch {
	case a.Verdict == plugins.Later:
		f.suspect = false
		c.records.retryAt(f, time.Now().Add(backOff(1, a.After, rand.Float64())))
		return nil
	case a.Verdict == plugins.Retry:
		return c.retry(f, a)
	case failure == nil:
		return c.succeed(l)
	case l.expired && failure.Kind != fault.Record && failure.Kind != fault.Timeout:
		failure = c.worker.host.limits.expired("answer", "record", l.limit)
	case failure.Kind == fault.OOM:
		if c.throttle.shrink(len(c.records.flying)) {
			c.worker.log.Warn("a record did not fit in memory next to the others", "concurrency", c.throttle.ceiling, "error", failure.Message)
			f.group.lane.out.stats.Retries++
			c.records.resend(f)
			return nil
		}
		failure = outOfMemory("out of device memory, even alone", failure)
	case failure.Kind == fault.Device && failure.Sign == fault.Text && f.group.lane.Blame:
		failure = failure.Signed("")
		failure.Kind = fault.Batch
	case noRecords(failure):
		return failure
	}
	return c.fail(f, failure)
}

// succeed settles a record with its answer, which is logged.
func (c *concurrent) succeed(l landing) error {
	f := l.flight
	c.worker.host.good(l.took, load{records: 1, bytes: max(1, f.record.Size())})
	c.search.good(l.took)
	crash.Point("worker-answered")
	c.judge(nil)
	if l.took > 0 {
		f.group.task.batches = append(f.group.task.batches, l.took)
	}
	return c.decide(f, verdict{results: l.answer.Results()})
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
		return c.fail(f, fault.GaveUp.New("gave up after %s: %s", attempts(f.retries+1), message).WithDetail(a.Detail).Bounded())
	}
	f.retries++
	f.group.lane.out.stats.Retries++
	wait := a.After // the window holds it back with all others, by chance a little longer
	if wait <= 0 {
		wait = backOff(f.retries, 0, rand.Float64())
	}
	c.records.retryAt(f, time.Now().Add(wait))
	return nil
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

// fail settles a record that failed.
func (c *concurrent) fail(f *flight, failure *fault.Error) error {
	c.worker.log.Warn("record failed", "record", f.number, "kind", failure.Kind, "error", failure.Message)
	c.judge(failure)
	return c.decide(f, verdict{fault: failure})
}

// decide gives a record its verdict.
func (c *concurrent) decide(f *flight, v verdict) error {
	f.suspect = false
	c.worker.computed.Add(1)
	c.worker.batches.Add(1)
	f.group.answer(f, v)
	return c.complete(f.group)
}

// lose handles the loss of the process. first is the first record that landed by it.
func (c *concurrent) lose(first landing, failure *fault.Error) error {
	c.worker.host.kill() // it may still run, but must not be used
	suspects, err := c.landRest(first)
	if err != nil {
		return err
	}
	// If the job stops meanwhile, nothing is sent again.
	_ = c.worker.host.begin(failure, func(d time.Duration) error { return c.worker.rest(c.loop.ctx, d) })
	c.worker.log.Warn("the kernel was lost", "records in flight", len(suspects), "error", failure.Message)
	blamed := c.search.blames(first) // then the others are not suspects
	for _, f := range c.records.again {
		f.suspect = f.suspect && blamed
	}
	for _, f := range suspects {
		if !blamed {
			f.suspect = true
			f.crashes++
		}
	}
	switch computed := c.worker.host.computed; {
	case blamed:
	case len(suspects) == 1:
		accused, err := c.search.accuse(suspects[0], failure, computed)
		if err != nil {
			return err
		}
		if accused != nil {
			return c.fail(suspects[0], accused)
		}
	default:
		c.search.begin(len(suspects), computed)
	}
	for _, f := range suspects {
		f.group.lane.out.stats.Retries++
		c.records.resend(f)
	}
	return nil
}

// landWait is how long the other records may take to land after the process was lost.
const landWait = 10 * time.Second

// landRest takes the landings of all records that were at the kernel. Those that have an
// answer are concluded, and those that are to blame fail; the others are returned.
func (c *concurrent) landRest(first landing) (suspects []*flight, err error) {
	ctx, cancel := context.WithTimeout(c.loop.ctx, landWait)
	defer cancel()
	for l := first; ; {
		if f := l.flight; c.records.flies(f) {
			switch failure := l.failure(); {
			case c.search.blames(l):
				delete(c.records.flying, f.number)
				err = c.fail(f, failure)
			case l.lost(failure):
				delete(c.records.flying, f.number)
				suspects = append(suspects, f)
			default:
				err = c.conclude(l)
			}
			if err != nil {
				return nil, err
			}
		}
		if len(c.records.flying) == 0 {
			return suspects, nil
		}
		for len(c.arrived) == 0 {
			select {
			case <-c.ready:
				if err := c.logArrived(); err != nil {
					return nil, err
				}
			case <-ctx.Done():
				return nil, fault.KernelCrashed.Of(fault.Worker, "%d records did not return from a kernel process that ended", len(c.records.flying))
			}
		}
		l = c.takeArrived()
	}
}

// Files of records are fetched ahead of the kernel: as many records wait for their files, or
// have them, as the kernel computes at a time. Each record is sent when its files are there,
// so a slow download delays no other record.

// fetchedFiles are the files of a record, or why it has none.
type fetchedFiles struct {
	flight  *flight
	files   [][]byte
	failure *fault.Error
}

// leastFetching is how many records may wait for their files, or for the kernel with them,
// whatever the kernel's number.
const leastFetching = 32

// mayFetch reports whether further records may be read, if they have files. held is what the lanes
// hold.
func (r *roster) mayFetch(w *Worker, held load) bool {
	if w.fetcher == nil {
		return true
	}
	fetching, ready := len(r.fetching), len(r.fresh)
	if fetching >= max(leastFetching, w.fetcher.Concurrency()) || fetching+ready >= max(leastFetching, w.host.info.Concurrency) {
		return false
	}
	return held.bytes < heldBatches*w.setup.Records.BatchBytes || fetching+ready+len(r.flying) == 0
}

// addFiles adds the files of a record, which is sent as soon as the kernel has room.
func (c *concurrent) addFiles(got fetchedFiles) error {
	f, g := got.flight, got.flight.group
	if c.records.fetching[f.number] != f {
		return nil // its chunk has ended
	}
	delete(c.records.fetching, f.number)
	if got.failure != nil {
		if notFetched(got.failure) {
			c.judge(got.failure)
		}
		return c.decide(f, verdict{fault: got.failure})
	}
	f.record = g.task.toCompute(f.at, f.at+1).WithFetched(g.lane.reader.fetch.names, got.files).At(0)
	f.fileBytes = f.record.Size() - len(f.record.Bytes())
	g.hold(f.fileBytes)
	c.records.fresh = insert(c.records.fresh, f)
	return nil
}

// releaseFiles releases the files of a record that is settled.
func (g *group) releaseFiles(f *flight) {
	if g.task.pending == nil {
		return
	}
	g.hold(-f.fileBytes)
	f.record, f.fileBytes = plugins.Record{}, 0
	g.task.pending[f.at].release()
}
