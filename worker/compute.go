package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// ahead is how many batches wait ready for the kernel, and how many for the
// writer: enough that neither the device nor the disk waits for the other.
const ahead = 2

// computing is the kernel at work on one chunk, and, so that the device does not wait
// at the border, on the first batches of the next.
type computing struct {
	worker *Worker
	ctx    context.Context
	now    *chunkRun
	next   *chunkRun // nil as long as none is assigned

	flight    []*work // submitted, oldest first; those of now come before those of next
	headSince time.Time
	watcher   *time.Timer // of the oldest
	restUntil time.Time   // the device rests
	quick     bool        // the last batch took no time
}

// compute works through a chunk and returns what came of it. Bad records are
// part of that; an error means that this worker cannot go on. A chunk that is assigned
// meanwhile is begun behind it: w.computing.next is for the next call.
func (w *Worker) compute(ctx context.Context, assign wire.Assign) (wire.Done, error) {
	run, err := w.begin(ctx, assign)
	if err != nil {
		return wire.Done{}, err
	}
	return w.finish(ctx, run)
}

// finish works through a chunk that is begun.
func (w *Worker) finish(ctx context.Context, run *chunkRun) (wire.Done, error) {
	c := &w.computing
	c.worker, c.ctx, c.now, c.next = w, ctx, run, nil
	return w.work()
}

// work computes until the chunk at hand is over.
func (w *Worker) work() (wire.Done, error) {
	c := &w.computing
	err := c.loop()
	done, err := c.now.close(err)
	if err != nil {
		c.flight = nil
		if c.next != nil {
			_, _ = c.next.close(err)
			c.next = nil
		}
	}
	return done, err
}

// work is one batch on its way from the reader through the kernel to the writer.
type work struct {
	run   *chunkRun // of the chunk that it is from
	batch *chunk.Batch
	// refused holds, for each record, why the kernel never sees it; nil entries
	// are sent, and all are where it is nil itself. upstream records are refused
	// with kind Upstream.
	refused []*fault.Error
	// sent are the positions in batch of what the kernel sees.
	sent []int
	// ready is how many of batch are for the writer; the rest is not computed.
	ready   int
	records [][]byte
	// spans tells where the inputs stand in each of records.
	inputs  []string
	spans   []uint32
	places  places
	load    load             // of records
	results *plugins.Results // of the batch as a whole
	// verdicts are those of sent where the batch was isolated; nil: results has them.
	verdicts []verdict
}

// verdict is where a record's result stands, or why it failed.
type verdict struct {
	results *plugins.Results
	index   int
	fault   *fault.Error
}

// toCompute is the records from lo to hi, of those sent, as a batch.
func (j *work) toCompute(lo, hi int) plugins.Batch {
	each := 2 * len(j.inputs)
	return plugins.NewBatch(j.records[lo:hi]).WithInputs(j.inputs, j.spans[lo*each:hi*each])
}

// verdict is that of record i of those sent, once it is known.
func (j *work) verdict(i int) verdict {
	if j.verdicts != nil {
		return j.verdicts[i]
	}
	return verdict{results: j.results, index: i}
}

// refusal is why the kernel never saw record i of the batch; nil if it did.
func (j *work) refusal(i int) *fault.Error {
	if j.refused == nil {
		return nil
	}
	return j.refused[i]
}

// quickBatch is below which a batch is over before the next message has come.
const quickBatch = 5 * time.Millisecond

// window is how many batches are with the kernel process at a time: one more
// than it computes, so that it never waits for the next, unless it should; more
// where they are so quick that messages take longer than they. At the end of the job
// what waits is better with somebody who has nothing to do.
func (c *computing) window() int {
	window := max(1, c.worker.host.info.InFlight)
	switch {
	case c.worker.pace.slowed():
		return 1
	case c.quick:
		window += 3
	case !c.worker.scarce.Load():
		window++
	}
	return window
}

// loop computes until nothing is left of the chunk at hand.
func (c *computing) loop() error {
	w := c.worker
	for {
		if w.pace.mustGive() {
			w.stops.giveBack(w.begun)
		}
		stopping := w.stops.includes(c.now)
		if stopping {
			c.handBack(c.inFlight(c.now))
		}
		if c.now.ended && !c.inFlight(c.now) {
			return nil
		}
		trimming := len(w.trims) > 0
		if trimming && len(c.flight) == 0 {
			<-w.trims
			w.trim(c.ctx)
			continue
		}
		if err := c.step(stopping || trimming); err != nil {
			return err
		}
	}
}

// inFlight reports whether the kernel has batches of a chunk.
func (c *computing) inFlight(run *chunkRun) bool { return len(c.flight) > 0 && c.flight[0].run == run }

// handBack ends the chunk before the first batch that is not submitted, and tells
// what is left of it for others before those in flight, if there are any, are waited for.
func (c *computing) handBack(inFlight bool) {
	run := c.now
	if run.ended {
		return
	}
	run.ended = true
	rest := run.behind
	if !inFlight || rest.Records == 0 {
		return // the end of the chunk, which is now, tells what is left
	}
	run.left = &rest
	c.worker.send(wire.Message{Left: &wire.Left{Rest: rest, InFlight: rest.First - run.rest.First}})
	crash.Point("worker-handed-back")
	run.reader.tellNear()
}

// reading is the chunk that batches come from; nil if there is none.
func (c *computing) reading() *chunkRun {
	switch {
	case !c.now.ended:
		return c.now
	case c.next != nil && !c.next.ended:
		return c.next
	}
	return nil
}

// step submits the next batch or finishes the oldest, whichever is possible
// first.
func (c *computing) step(stopping bool) error {
	var batches <-chan readBatch
	var rested <-chan time.Time
	run := c.reading()
	if run != nil && !stopping && len(c.flight) < c.window() {
		batches = run.reader.batches
		if wait := c.breather(); wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			batches, rested = nil, timer.C
		}
	}
	var assigned <-chan wire.Assign
	if c.next == nil {
		assigned = c.worker.assigned
	}
	var head <-chan struct{}
	var expired <-chan time.Time
	if len(c.flight) > 0 {
		head = c.flight[0].results.Done()
		limit := c.worker.host.limit(c.flight[0].load)
		expired = c.watch(time.Until(c.headSince.Add(limit)))
	}
	select {
	case batch, ok := <-batches:
		return c.submit(run, batch, ok)
	case assign, more := <-assigned:
		return c.beginNext(assign, more)
	case <-head:
		return c.finishHead(c.flight[0].results.Wait(c.ctx))
	case <-expired:
		return c.finishHead(c.worker.host.tooLong(c.worker.host.limit(c.flight[0].load)))
	case <-rested:
		return nil
	case <-c.worker.pace.wake: // to stop, or another pace
		return nil
	case <-c.worker.stops.overdue:
		c.abandon()
		return nil
	case <-c.now.out.broken:
		return c.now.out.err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// abandon ends the chunk before the batches in flight, which have had their time: the job
// stops, and they are computed by the next run.
func (c *computing) abandon() {
	c.worker.log.Warn("the job stops, and the kernel did not finish its batch in time", "batches", len(c.flight))
	c.worker.host.kill()
	c.flight = nil
	c.now.interrupted, c.now.ended = true, true
}

// watch tells when the oldest batch has had its time. One timer does for all.
func (c *computing) watch(left time.Duration) <-chan time.Time {
	if c.watcher == nil {
		c.watcher = time.NewTimer(left)
	} else {
		c.watcher.Reset(left)
	}
	return c.watcher.C
}

// beginNext reads the next chunk ahead.
func (c *computing) beginNext(assign wire.Assign, more bool) (err error) {
	if !more { // the orchestrator wants nobody to go on
		return fault.New(fault.Canceled, "the worker ends")
	}
	c.next, err = c.worker.begin(c.ctx, assign)
	return err
}

func (c *computing) submit(run *chunkRun, batch readBatch, ok bool) error {
	if !ok {
		run.ended = true
		return nil
	}
	if batch.err != nil {
		return batch.err
	}
	job := batch.work
	run.behind = job.batch.Rest()
	job.run, job.results, job.load = run, plugins.NewResults(len(job.records)), loadOf(job.records)
	if len(c.flight) == 0 {
		c.headSince = time.Now()
	}
	c.flight = append(c.flight, job)
	if len(job.records) == 0 { // nothing for the kernel in it
		job.results.Defer()(nil)
		return nil
	}
	if c.worker.host.process == nil {
		if open, err := c.reopen(run); !open {
			return err
		}
	}
	err := c.worker.host.process.Process(c.ctx, job.toCompute(0, len(job.sent)), job.results)
	crash.Point("worker-mid-batch")
	return err
}

// reopen starts the kernel for the batch at hand. It returns false if there is none, with
// an error unless the batch was abandoned.
func (c *computing) reopen(run *chunkRun) (open bool, err error) {
	ctx, cancel := c.worker.stops.untilOverdue(c.ctx)
	defer cancel()
	run.stats.Restarts++
	if _, err = c.worker.host.alive(ctx); err != nil && closed(c.worker.stops.overdue) {
		c.abandon()
		return false, nil
	}
	return err == nil, err
}

// finishHead takes the oldest batch's outcome.
func (c *computing) finishHead(err error) error {
	job := c.flight[0]
	c.flight = c.flight[1:]
	if len(job.records) == 0 {
		return job.run.pass(job)
	}
	job.run.stats.Batches++
	took := time.Since(c.headSince)
	job.run.stats.Busy += took
	c.quick = took < quickBatch
	if err == nil {
		c.worker.host.good(took, job.load)
		c.worker.keepControl(job, 0)
		c.worker.proof.given = true
		c.worker.sizes.good(len(job.batch.Records), took)
		c.headSince = time.Now()
		c.restUntil = c.headSince.Add(c.worker.pace.rest(took))
		return job.run.pass(job)
	}
	return c.recover(job, err)
}

// recover handles a failed batch. Whatever was in flight behind it is waited
// for first: results that came are good, and what a dead kernel took with it is
// run again, one batch at a time, so that blame is certain. Batches of the next chunk
// stay where they are, as complete as they are now.
func (c *computing) recover(job *work, err error) error {
	flight := c.flight
	c.flight = nil
	outcomes := make([]error, len(flight))
	for i, other := range flight {
		outcomes[i] = c.await(other)
	}
	if lost(err) {
		flight = slices.DeleteFunc(flight, func(other *work) bool { return other.run != job.run })
		c.share()
	}
	if err := job.run.isolate(job, err); err != nil {
		return err
	}
	for i, other := range flight {
		if other.run != job.run {
			if other.run == c.next { // or else it was given back in a search
				c.flight = flight[i:]
			}
			break
		}
		if err := other.run.takeUp(other, outcomes[i]); err != nil {
			return err
		}
	}
	c.headSince = time.Now()
	return nil
}

// lost reports whether the kernel's process was lost by a batch.
func lost(err error) bool {
	e := fault.As(err)
	return e != nil && (e.Kind == fault.Crash || e.Kind == fault.Timeout || e.Sign == fault.HostMemory)
}

// share leaves to others what they can have of what is assigned, while the kernel is
// started again and again in a search: the chunk behind the one at hand, and, if
// somebody waits for it, the rest of this one.
func (c *computing) share() {
	next, given := c.next, c.next != nil
	c.next = nil
	if !given {
		select {
		case assign, more := <-c.worker.assigned:
			if given = more; given {
				next, _ = c.worker.begin(c.ctx, assign) // if it cannot be read, whoever gets it will see why
			}
		default:
		}
	}
	if next != nil {
		_, _ = next.close(errGivenBack)
	}
	if given {
		c.worker.send(wire.Message{Back: &wire.Back{}})
	}
	if c.worker.stops.includes(c.now) {
		c.handBack(true)
	}
}

var errGivenBack = errors.New("given back")

// await waits for a batch behind a failed one, killing a kernel that hangs.
func (c *computing) await(job *work) error {
	ctx, cancel := c.worker.stops.untilOverdue(c.ctx)
	defer cancel()
	ctx, cancelWait := context.WithTimeout(ctx, c.worker.host.limit(job.load))
	defer cancelWait()
	err := job.results.Wait(ctx)
	if ctx.Err() != nil && c.ctx.Err() == nil && fault.As(err) == nil {
		c.worker.host.kill()
		return fault.New(fault.Crash, "kernel did not answer")
	}
	return err
}
