package worker

import (
	"context"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// loop computes the assigned chunks: it reads their records, passes them to the kernel, and waits
// for what happens next. One goroutine owns it.
//
// Each chunk has its lane, with a reader and a writer of its own.
type loop struct {
	worker *Worker
	ctx    context.Context
	lanes  lanes
	work   work
	logs   logs
	alarm  alarm
}

// work is what a kernel has to compute: batches (compute.go) or records (concurrent.go).
type work interface {
	// follow obeys the stop requests for a lane, and reports whether the lane has ended.
	follow(l *lane) (ended bool)
	// mayTrim reports whether the kernel may free memory now. While that is requested, a kernel
	// that computes batches gets none.
	mayTrim() bool
	// feed sends the kernel what it may have, and returns what to wait for.
	feed() (pause, error)
	// add takes what was read.
	add(g *group) error
	// land handles what the kernel has computed.
	land() error
	// abandon gives up what the kernel has: the job is stopping, and the drain timeout has expired.
	// The next run computes it.
	abandon() error
	// end discards what the kernel still has for a job that is done.
	end()
}

// pause is what the loop waits for.
type pause struct {
	reading *lane           // for records of this lane; nil if no more may be read
	landed  <-chan struct{} // for the kernel
	longest time.Duration   // until something is due
	idle    bool            // the kernel has nothing to compute
	files   bool            // that is so because files have not arrived
}

// addIdle counts time in which the kernel had nothing to compute because nothing was read.
func (p pause) addIdle(since time.Time) {
	if p.idle && p.reading != nil {
		p.reading.out.stats.Input += time.Since(since)
	}
}

// idleTurn is how long to wait at most when nothing is due: the kernel may have a warning.
const idleTurn = time.Second

func newLoop(ctx context.Context, w *Worker) *loop {
	return &loop{worker: w, ctx: ctx, alarm: newAlarm()}
}

// open prepares for the chunks of a job.
func (c *loop) open() (err error) {
	c.lanes, c.logs = nil, newLogs(c.worker.setup.Checkpoint)
	if c.worker.setup.GiveUp != nil || c.worker.host.info.Concurrency > 0 {
		c.work, err = newConcurrent(c)
		return err
	}
	c.worker.computing = &computing{loop: c, worker: c.worker}
	c.work = c.worker.computing
	return nil
}

// close ends the job.
func (c *loop) close() {
	c.work.end()
	c.logs.finish(c.worker.log)
}

// serve computes the assigned chunks. An error means that this worker cannot continue.
func (c *loop) serve() error {
	if err := c.open(); err != nil {
		return err
	}
	for {
		more, err := c.turn()
		if err != nil {
			for _, l := range c.lanes {
				_ = l.close(err)
			}
			return err
		}
		if !more {
			c.close()
			return nil
		}
	}
}

// begin starts a lane.
func (c *loop) begin(assign wire.Assign) error {
	if c.worker.renew() {
		c.close()
		if err := c.open(); err != nil {
			return err
		}
	}
	l, err := c.worker.begin(c.ctx, assign, c.logs.syncer)
	if err == nil {
		c.lanes = append(c.lanes, l)
	}
	return err
}

// turn ends the lanes that are over, feeds the kernel, and then waits for something to happen. It
// returns false when there are no more chunks.
func (c *loop) turn() (more bool, err error) {
	w := c.worker
	if len(w.trims) > 0 && c.work.mayTrim() {
		<-w.trims
		w.trim(c.ctx)
	}
	if err := c.logs.sync(); err != nil {
		return false, err
	}
	if err := c.endLanes(); err != nil {
		return false, err
	}
	next, err := c.work.feed()
	if err != nil {
		return false, err
	}
	if next.idle {
		w.host.leave()
	}
	return c.wait(next)
}

// endLanes obeys the stop requests, and ends the lanes that are over.
func (c *loop) endLanes() error {
	w := c.worker
	if w.pace.mustHandBack() {
		w.stops.endThrough(w.begun)
	}
	for _, l := range slices.Clone(c.lanes) {
		var err error
		switch {
		case c.work.follow(l):
			c.lanes = slices.DeleteFunc(c.lanes, func(other *lane) bool { return other == l })
			err = l.close(nil)
		case w.stops.mustCut(l):
			err = l.cut()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wait waits for something to happen, and handles it.
func (c *loop) wait(next pause) (more bool, err error) {
	w := c.worker
	var batches <-chan readBatch
	if next.reading != nil {
		batches = next.reading.reader.batches
	}
	var broken, overdue <-chan struct{}
	if len(c.lanes) > 0 {
		broken, overdue = c.lanes[0].out.broken, w.stops.overdue
	}
	waited := time.Now()
	c.alarm.set(waited.Add(next.longest))
	select {
	case batch, ok := <-batches:
		next.addIdle(waited)
		return true, c.receive(next.reading, batch, ok)
	case <-next.landed:
		return true, c.work.land()
	case assign, more := <-w.assigned:
		switch {
		case more:
			return true, c.begin(assign)
		case len(c.lanes) > 0:
			return false, fault.Interrupted.New("the worker is exiting")
		}
		return false, nil
	case <-c.alarm.timer.C:
		c.alarm.at = time.Time{}
		next.addIdle(waited)
		for _, l := range c.lanes {
			l.out.computed(0)
		}
		if next.files && time.Since(waited) >= fetchShown {
			c.lanes[0].out.awaits(wire.AwaitsFiles)
		}
		if list := w.host.newWarnings(); len(list) > 0 {
			w.send(wire.Message{Warned: &wire.Warned{Warnings: list}})
		}
	case <-w.pace.wake: // a request or a new pace
	case <-overdue:
		return true, c.work.abandon()
	case <-broken:
		return false, c.lanes[0].out.err()
	case <-c.ctx.Done():
		return false, c.ctx.Err()
	}
	return true, nil
}

// receive receives a group from the reader of a lane.
func (c *loop) receive(l *lane, batch readBatch, ok bool) error {
	if !ok {
		l.read = true
		return nil
	}
	if batch.err != nil {
		return batch.err
	}
	g, task := batch.group, batch.group.task
	g.lane, task.lane = l, l
	l.unsubmitted, l.groups = task.batch.Rest(), append(l.groups, g)
	return c.work.add(g)
}

// reopen starts the kernel for a chunk unless it is running. It returns false, and abandons what is
// in flight, if the job no longer waits for it.
func (c *loop) reopen(l *lane) (bool, error) {
	w := c.worker
	if w.host.process != nil {
		return true, nil
	}
	ctx, cancel := w.stops.untilOverdue(c.ctx)
	defer cancel()
	l.out.stats.Restarts++
	_, err := w.host.alive(ctx)
	if err != nil && closed(w.stops.overdue) {
		return false, c.work.abandon()
	}
	return err == nil, err
}
