package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/plugins"
)

// ahead is how many batches are prefetched for the kernel, and how many may wait for the
// writer: enough that neither the device nor the disk waits for the other.
const ahead = 2

// computing is the work of a kernel that computes batches: of one chunk and, so that the
// device does not idle between chunks, the first of the next.
type computing struct {
	loop   *loop
	worker *Worker

	flight    []*batchTask // submitted, oldest first; those of the first lane come before those of the next
	headSince time.Time
	restUntil time.Time     // when the device may compute again
	quick     bool          // the last batch took almost no time
	usual     time.Duration // how long a batch takes; 0 if unknown
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

// averageTime updates the usual time of a batch.
func (c *computing) averageTime(took time.Duration) {
	const share = 32 // about how many batches to average
	if c.usual == 0 {
		c.usual = took
	}
	c.usual = max(1, c.usual+(took-c.usual)/share)
}

// follow obeys the stop requests for the first lane. The others wait until it has ended.
func (c *computing) follow(l *lane) (ended bool) {
	if l != c.loop.lanes[0] {
		return false
	}
	inFlight := len(c.flight) > 0 && c.flight[0].lane == l
	c.obey(l, inFlight)
	return (l.read || l.ended) && !inFlight && l.groups.open() == nil
}

// obey ends a chunk before its first unsubmitted batch, or after the window that is being computed,
// if that is requested.
func (c *computing) obey(l *lane, inFlight bool) {
	end := c.worker.stops.mustEnd(l)
	if !end && !(c.worker.stops.mustShare(l) && l.shares()) || l.ended && l.groups.open() == nil {
		return
	}
	if end {
		l.leave()
	}
	l.handBack(l.unsubmitted, inFlight || l.groups.open() != nil)
}

func (c *computing) mayTrim() bool { return len(c.flight) == 0 }

func (c *computing) end() {}

// feed gives up a batch that takes too long, and submits those of a window that the kernel may have.
func (c *computing) feed() (next pause, err error) {
	if len(c.flight) > 0 && c.headLeft() <= 0 && !closed(c.flight[0].results.Done()) {
		return next, c.finishHead(c.worker.host.tooLong(c.worker.host.limit(c.flight[0].load)))
	}
	next.longest = idleTurn
	for l := c.loop.lanes.reading(); l != nil; l = c.loop.lanes.reading() {
		if delay := c.delay(); delay > 0 {
			next.longest = min(next.longest, delay)
			break
		}
		g := l.groups.open()
		if g == nil {
			next.reading = l
			break
		}
		if err := c.send(g.next()); err != nil {
			return next, err
		}
	}
	if next.idle = len(c.flight) == 0; !next.idle {
		next.landed, next.longest = c.flight[0].results.Done(), min(next.longest, c.headLeft())
		c.loop.lanes[0].out.awaits("")
	}
	next.files = next.idle && next.reading != nil && next.reading.reader.fetch != nil
	return next, nil
}

// delay returns how long to delay the next batch: not at all, until a batch has landed or the kernel
// has freed memory, until the device has rested, or during a pause until the chunk is handed back.
func (c *computing) delay() time.Duration {
	w := c.worker
	handBack, paused := w.pace.paused()
	switch {
	case len(c.flight) >= c.window(), len(w.trims) > 0, w.stops.mustEnd(c.loop.lanes[0]):
		return idleTurn
	case paused:
		return max(time.Millisecond, time.Until(handBack))
	}
	return time.Until(c.restUntil)
}

// headLeft returns how long the oldest batch may still take.
func (c *computing) headLeft() time.Duration {
	return time.Until(c.headSince.Add(c.worker.host.limit(c.flight[0].load)))
}

// add submits a batch that was read. Those of a window follow in feed.
func (c *computing) add(g *group) error {
	if len(g.left.order) > 0 {
		return nil
	}
	return c.send(g.task)
}

// send submits a batch to the kernel.
func (c *computing) send(task *batchTask) error {
	task.results, task.load = plugins.NewResults(len(task.records)), task.loadOf(0, len(task.records))
	if len(c.flight) == 0 {
		c.headSince = time.Now()
	}
	c.flight = append(c.flight, task)
	if len(task.records) == 0 { // nothing to send to the kernel
		task.results.Defer()(nil)
		return nil
	}
	if running, err := c.loop.reopen(task.lane); !running {
		return err
	}
	task.isolation = c.worker.host.isolation(task.load)
	err := c.worker.host.process.Process(c.loop.ctx, task.toCompute(0, len(task.sent)).WithIsolation(task.isolation), task.results)
	crash.Point("worker-mid-batch")
	return err
}

// land handles the outcome of the oldest batch.
func (c *computing) land() error { return c.finishHead(c.flight[0].results.Wait(c.loop.ctx)) }

// finishHead handles the outcome of the oldest batch.
func (c *computing) finishHead(err error) error {
	task := c.flight[0]
	c.flight = c.flight[1:]
	if len(task.records) == 0 {
		return task.lane.pass(task)
	}
	task.lane.out.countBatch()
	took := time.Since(c.headSince)
	task.took = took
	task.lane.out.addBusy(took)
	c.quick = took < quickBatch
	if err == nil {
		if task.results.Isolated() {
			task.lane.out.stats.Retries++
			task.isolated(c.worker, 0, task.results, took)
		} else {
			c.averageTime(took)
			c.worker.host.good(took, task.load)
			c.worker.proof.keep(task, 0)
			c.worker.proof.given, c.worker.batchPassed = true, true
			task.good(took)
		}
		c.headSince = time.Now()
		c.restUntil = c.headSince.Add(c.worker.pace.rest(took))
		return task.lane.pass(task)
	}
	return c.recover(task, err)
}
