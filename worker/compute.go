package worker

import (
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// ahead is how many batches are prefetched for the kernel, and how many may wait for the
// writer: enough that neither the device nor the disk waits for the other.
const ahead = 2

// computing is the kernel's work on one chunk and, so that the device does not idle between
// chunks, on the first batches of the next.
type computing struct {
	worker  *Worker
	ctx     context.Context
	current *chunkRun
	next    *chunkRun // nil until one is assigned

	flight    []*batchTask // submitted, oldest first; those of current come before those of next
	headSince time.Time
	watcher   *time.Timer   // ends a wait
	restUntil time.Time     // when the device may compute again
	quick     bool          // the last batch took almost no time
	usual     time.Duration // how long a batch takes; 0 if unknown
}

// finish processes a chunk that has been begun, and returns the outcome, which includes its
// bad records. An error means that this worker cannot continue. If another chunk is assigned
// meanwhile, finish begins it too and leaves it in next for the next call.
func (c *computing) finish(ctx context.Context, run *chunkRun) (wire.Done, error) {
	if c.ctx, c.current = ctx, run; c.next == run {
		c.next = nil
	}
	err := c.loop()
	done, err := c.current.close(err)
	if err != nil {
		c.flight = nil
		if c.next != nil {
			_, _ = c.next.close(err)
			c.next = nil
		}
	}
	return done, err
}

// quickBatch is the time below which a batch finishes before the next message arrives.
const quickBatch = 5 * time.Millisecond

// window returns how many batches to keep submitted to the kernel process: one more than it
// computes at a time, so that it never waits for the next, unless it is slowed down; more
// if batches are so quick that messages take longer. At the end of the job no batch should
// queue here, because an idle worker can compute it sooner.
func (c *computing) window() int {
	window := max(1, c.worker.host.info.InFlight)
	switch {
	case c.worker.pace.share() < 1, c.worker.sizes.growing(): // those read ahead would still be small
		return 1
	case c.quick:
		window += 3
	case !c.worker.draining.Load():
		window++
	}
	return window + c.ahead(window)
}

// aheadTime is how long the batches in flight may take together if some of them are only
// there to be prepared (plugins.Info.Ahead).
const aheadTime = 2 * time.Second

// ahead returns how many batches beyond the usual window to submit.
func (c *computing) ahead(window int) int {
	most := c.worker.host.info.Ahead
	if most == 0 || c.usual == 0 || c.worker.draining.Load() {
		return 0
	}
	return min(most, max(0, int(aheadTime/c.usual)-window))
}

// noteTime updates the usual time of a batch.
func (c *computing) noteTime(took time.Duration) {
	const share = 32 // about how many batches to average
	if c.usual == 0 {
		c.usual = took
	}
	c.usual = max(1, c.usual+(took-c.usual)/share)
}

// loop computes until nothing remains of the current chunk.
func (c *computing) loop() error {
	w := c.worker
	for {
		if w.pace.mustHandBack() {
			w.stops.endThrough(w.begun)
		}
		if run := c.current; w.stops.mustCut(run) && run.mayCut() {
			if err := run.cut(); err != nil {
				return err
			}
		}
		stopping := c.stopping(c.inFlight(c.current))
		if c.current.ended && !c.inFlight(c.current) && !c.current.open() {
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

// stopping follows the stop requests for the current chunk, and reports whether it must end
// without another batch.
func (c *computing) stopping(inFlight bool) bool {
	end := c.worker.stops.mustEnd(c.current)
	if end || c.worker.stops.mustShare(c.current) && c.current.shares() {
		c.handBack(inFlight, !end)
	}
	return end
}

// inFlight reports whether the kernel has batches of a chunk.
func (c *computing) inFlight(run *chunkRun) bool { return len(c.flight) > 0 && c.flight[0].run == run }

// handBack ends the chunk before its first unsubmitted batch, or, with finish, after the window that
// is being computed. If batches are in flight, it reports the remainder at once, so that other
// workers can have it before they finish; otherwise the end of the chunk reports it.
func (c *computing) handBack(inFlight, finish bool) {
	run := c.current
	if run.ended && !run.open() {
		return
	}
	if run.ended = true; !finish {
		run.leave()
	}
	if (inFlight || run.open()) && run.unsubmitted.Records > 0 && run.handedBack == nil {
		run.reportRemainder(run.unsubmitted)
	}
}

// reading returns the chunk to take batches from, or nil if there is none.
func (c *computing) reading() *chunkRun {
	switch {
	case !c.current.ended, c.current.open():
		return c.current
	case c.next != nil && !c.next.ended:
		return c.next
	}
	return nil
}

// step submits the next batch or finishes the oldest, whichever is possible first.
func (c *computing) step(stopping bool) error {
	var batches <-chan readBatch
	run, wait := c.reading(), time.Hour
	if run != nil && !stopping && len(c.flight) < c.window() {
		switch delay := c.batchDelay(); {
		case delay > 0:
			wait = delay
		case run.open():
			return c.send(run, run.nextOf(run.groups[len(run.groups)-1]))
		default:
			batches = run.reader.batches
		}
	}
	var assigned <-chan wire.Assign
	if c.next == nil {
		assigned = c.worker.assigned
	}
	var head <-chan struct{}
	if len(c.flight) > 0 {
		head = c.flight[0].results.Done()
		wait = min(wait, c.headLeft())
	}
	fetching := batches != nil && len(c.flight) == 0 && run.reader.fetch != nil && c.worker.awaited() == ""
	if fetching {
		wait = fetchShown
	}
	waiting := time.Now()
	select {
	case batch, ok := <-batches:
		if len(c.flight) == 0 {
			run.stats.Input += time.Since(waiting)
		}
		run.out.awaits("")
		return c.submit(run, batch, ok)
	case assign, more := <-assigned:
		return c.beginNext(assign, more)
	case <-head:
		return c.finishHead(c.flight[0].results.Wait(c.ctx))
	case <-c.watch(wait):
		switch {
		case len(c.flight) > 0 && c.headLeft() <= 0:
			return c.finishHead(c.worker.host.tooLong(c.worker.host.limit(c.flight[0].load)))
		case fetching:
			run.stats.Input += time.Since(waiting)
			run.out.awaits(wire.AwaitsFiles)
		}
		return nil
	case <-c.worker.pace.wake: // a stop request or a new pace
		return nil
	case <-c.worker.stops.overdue:
		c.abandon()
		return nil
	case <-c.current.out.broken:
		return c.current.out.err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// headLeft returns how long the oldest batch may still take.
func (c *computing) headLeft() time.Duration {
	return time.Until(c.headSince.Add(c.worker.host.limit(c.flight[0].load)))
}

// watch returns a channel that fires after a time. It reuses one timer.
func (c *computing) watch(wait time.Duration) <-chan time.Time {
	if c.watcher == nil {
		c.watcher = time.NewTimer(wait)
	} else {
		c.watcher.Reset(wait)
	}
	return c.watcher.C
}

// beginNext starts to read the next chunk ahead.
func (c *computing) beginNext(assign wire.Assign, more bool) (err error) {
	if !more { // the orchestrator has ended this worker
		return fault.Interrupted.New("the worker is exiting")
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
	g, task := batch.group, batch.group.task
	task.run, run.unsubmitted, run.groups = run, task.batch.Rest(), append(run.groups, g)
	if len(g.left.order) > 0 {
		task = run.nextOf(g)
	}
	return c.send(run, task)
}

// send submits a batch to the kernel.
func (c *computing) send(run *chunkRun, task *batchTask) error {
	task.results, task.load = plugins.NewResults(len(task.records)), task.loadOf(0, len(task.records))
	if len(c.flight) == 0 {
		c.headSince = time.Now()
	}
	c.flight = append(c.flight, task)
	if len(task.records) == 0 { // nothing to send to the kernel
		task.results.Defer()(nil)
		return nil
	}
	if c.worker.host.process == nil {
		switch err := run.reopen(c.ctx); {
		case errors.Is(err, errOverdue):
			c.abandon()
			return nil
		case err != nil:
			return err
		}
	}
	task.isolation = c.worker.host.isolation(task.load)
	err := c.worker.host.process.Process(c.ctx, task.toCompute(0, len(task.sent)).WithIsolation(task.isolation), task.results)
	crash.Point("worker-mid-batch")
	return err
}

// finishHead handles the outcome of the oldest batch.
func (c *computing) finishHead(err error) error {
	task := c.flight[0]
	c.flight = c.flight[1:]
	if len(task.records) == 0 {
		return task.run.pass(task)
	}
	task.run.stats.Batches++
	took := time.Since(c.headSince)
	task.took = took
	task.run.addBusy(took)
	c.quick = took < quickBatch
	if err == nil {
		if task.results.Isolated() {
			task.run.stats.Retries++
			task.run.isolated(task, 0, task.results)
		} else {
			c.noteTime(took)
			c.worker.host.good(took, task.load)
			c.worker.proof.keep(task, 0)
			c.worker.proof.given, c.worker.batchPassed = true, true
			task.good(took)
		}
		c.headSince = time.Now()
		c.restUntil = c.headSince.Add(c.worker.pace.rest(took))
		return task.run.pass(task)
	}
	return c.recover(task, err)
}
