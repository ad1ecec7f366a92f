package worker

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/early"
)

// concurrent drives a kernel that computes records independently of each other. It keeps a
// number of records in flight, across groups and chunks, restores their order, and logs each
// answer at once. One goroutine owns it; only Answer runs in others, one for each record.
//
//	reader ──► groups ──► records in flight ──► answers ──► early log
//	              └── complete, in input order ──► writer
//
// Each chunk has its lane, with a reader, a writer and a log of its own. A lane ends when its
// records are written, whatever happens in the others: a slow record holds up only its own.
type concurrent struct {
	worker   *Worker
	ctx      context.Context
	lanes    lanes
	records  roster
	landed   chan landing
	arrived  []landing // taken from landed
	fetched  chan fetchedFiles
	throttle throttle
	search   suspicion
	logs     logs
	spend    spend
	busy     bool
	busyFrom time.Time
	alarm    alarm
}

// alarm ends a wait. Its timer stays set even if nothing is due any more: setting it again for
// each answer would cost more than one turn in vain.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero if it is not set
}

func newAlarm() alarm {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return alarm{timer: timer}
}

// set lets the timer fire at a time, or before.
func (a *alarm) set(at time.Time) {
	if a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.timer.Reset(time.Until(at))
	}
}

func newConcurrent(ctx context.Context, w *Worker) *concurrent {
	return &concurrent{
		worker: w, ctx: ctx, records: newRoster(), throttle: newThrottle(w.host.info.Concurrency),
		landed: make(chan landing, w.host.info.Concurrency), fetched: make(chan fetchedFiles),
		logs: newLogs(w.setup.Checkpoint), alarm: newAlarm(),
	}
}

// serve computes the assigned chunks.
func (c *concurrent) serve() {
	w := c.worker
	if err := c.spend.open(w.setup); err != nil {
		w.fail(err)
		return
	}
	defer func() { c.spend.figures.Close() }()
	for {
		more, err := c.turn()
		if err != nil {
			for _, l := range c.lanes {
				_, _ = l.run.close(err)
			}
			w.fail(err)
			return
		}
		if !more {
			c.end()
			_ = w.host.close() // it is logged
			return
		}
	}
}

// end discards the records that the kernel still computes: it would answer for a job that is done.
func (c *concurrent) end() {
	if len(c.records.flying) > 0 {
		c.worker.host.kill()
	}
	c.logs.finish(c.worker.log)
}

// begin starts reading a chunk. Unless the chunk is new, it imports the answers that are
// logged for it.
func (c *concurrent) begin(assign wire.Assign) error {
	if c.worker.takeRenewed() { // forget the job that is done
		c.end()
		c.spend.figures.Close()
		*c = *newConcurrent(c.ctx, c.worker)
		if err := c.spend.open(c.worker.setup); err != nil {
			return err
		}
	}
	first, end := assign.Chunk.First, assign.Chunk.First+assign.Chunk.Records
	short := func() bool { return !c.lanes.holdLess(spillShare, c.throttle.full) }
	l := &lane{short: short, log: early.New(filepath.Dir(assign.Part), first, end, c.logs.syncer)}
	if !assign.New {
		if err := l.log.Import(); err != nil {
			return fault.JobFiles.Wrap(err)
		}
	}
	var err error
	if l.run, err = c.worker.begin(c.ctx, assign); err != nil {
		return err
	}
	at, _ := slices.BinarySearchFunc(c.lanes, first, func(other *lane, first int64) int { return int(other.run.first - first) })
	c.lanes = slices.Insert(c.lanes, at, l)
	return nil
}

// turn counts the time in which the kernel had work, ends the lanes that are over, sends records to the kernel, and then waits for
// something to happen. It returns false when there are no more chunks.
func (c *concurrent) turn() (more bool, err error) {
	now := time.Now()
	if c.busy && len(c.lanes) > 0 {
		c.lanes[0].run.addBusy(now.Sub(c.busyFrom))
	}
	c.busy, c.busyFrom = len(c.records.flying) > 0, now
	switch {
	case len(c.lanes) == 0:
	case c.throttle.holding:
		c.lanes[0].run.out.awaits(wire.AwaitsServer)
	case c.busy:
		c.lanes[0].run.out.awaits("")
	}
	if c.spend.isOver(len(c.records.flying)) {
		c.worker.send(wire.Message{Spent: &wire.Spent{Blind: c.spend.blind()}})
	}
	if err := c.logs.sync(); err != nil {
		return false, err
	}
	if err := c.follow(); err != nil {
		return false, err
	}
	if err := c.feed(); err != nil {
		return false, err
	}
	return c.step()
}

// follow obeys the stop requests, and ends the lanes that are over.
func (c *concurrent) follow() error {
	w := c.worker
	if w.pace.mustHandBack() {
		w.stops.endThrough(w.begun)
	}
	for _, l := range slices.Clone(c.lanes) {
		var err error
		switch {
		case l.over(&c.records):
			c.lanes = slices.DeleteFunc(c.lanes, func(other *lane) bool { return other == l })
			c.records.forget(l)
			err = l.close()
		case w.stops.mustCut(l.run):
			err = l.cut()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// feed sends records until the kernel has as many as it may.
func (c *concurrent) feed() error {
	if len(c.lanes) == 0 {
		return nil
	}
	if c.worker.host.process != nil && c.lanes[0].run.dead() {
		if len(c.records.flying) > 0 {
			return nil // they land first, with the cause
		}
		c.worker.host.kill()
	}
	c.records.resendDue(time.Now())
	for {
		f, most := c.next(time.Now())
		if f == nil || len(c.records.flying) >= most || c.spend.reached() {
			return nil
		}
		if c.worker.host.process == nil {
			switch err := c.lanes[0].run.reopen(c.ctx); {
			case errors.Is(err, errOverdue):
				return c.abandon()
			case err != nil:
				return err
			}
		}
		if !c.spend.take() {
			return nil
		}
		c.send(f)
	}
}

// next returns the next record to send, or nil if there is none, and how many may be at the kernel:
// suspects alone while a search lasts, then records that were sent before, then new ones.
func (c *concurrent) next(now time.Time) (f *flight, most int) {
	most = c.throttle.capacity(c.worker.pace.share(), now)
	if f, lasts := c.search.next(&c.records, now); lasts {
		return f, min(most, c.search.limit)
	}
	// While no record can be tried, only those that show when that is over are sent.
	fresh := !c.throttle.holding || !c.records.tried()
	return c.records.next(c.throttle.refuses(now), fresh), most
}

// send sends a record to the kernel.
func (c *concurrent) send(f *flight) {
	c.records.send(f)
	host, landed, started := c.worker.host, c.landed, time.Now()
	limit := host.limit(load{records: 1, bytes: f.record.Size()})
	f.started, f.round = started, c.throttle.window.Round()
	host.process.Ask(f.record, limit, func(a plugins.Answer, expired bool) {
		landed <- landing{flight: f, answer: a, expired: expired, limit: limit, took: time.Since(started)}
	})
	crash.Point("worker-mid-batch")
}

// step waits for something to happen.
func (c *concurrent) step() (more bool, err error) {
	var batches <-chan readBatch
	reading := c.lanes.reading()
	if reading != nil && c.records.unsent(reading) == nil && c.lanes.holdLess(1, c.throttle.full) && c.records.mayFetch(c.worker, c.lanes.held()) {
		batches = reading.run.reader.batches
	}
	for _, l := range c.lanes {
		if l.rereads() {
			if err := l.reread(); err != nil {
				return false, err
			}
		}
	}
	var broken, overdue <-chan struct{}
	if len(c.lanes) > 0 {
		broken, overdue = c.lanes[0].run.out.broken, c.worker.stops.overdue
	}
	waited := time.Now()
	c.alarm.set(waited.Add(c.nextEvent(waited)))
	select {
	case batch, ok := <-batches:
		if len(c.records.flying) == 0 {
			reading.run.stats.Input += time.Since(waited)
		}
		return true, c.take(reading, batch, ok)
	case l := <-c.landed:
		c.arrived = append(c.arrived, l)
		return true, c.landAll()
	case got := <-c.fetched:
		return true, c.takeFiles(got)
	case assign, more := <-c.worker.assigned:
		switch {
		case more:
			return true, c.begin(assign)
		case len(c.lanes) > 0:
			return false, fault.Interrupted.New("the worker is exiting")
		}
		return false, nil
	case <-c.alarm.timer.C:
		c.alarm.at = time.Time{}
		for _, l := range c.lanes {
			l.run.out.computed(0)
		}
		if !c.throttle.holding && len(c.records.flying) == 0 && len(c.records.fetching) > 0 && len(c.lanes) > 0 && time.Since(waited) >= fetchShown {
			c.lanes[0].run.out.awaits(wire.AwaitsFiles)
		}
		if list := c.worker.host.takeWarnings(); len(list) > 0 {
			c.worker.send(wire.Message{Warned: &wire.Warned{Warnings: list}})
		}
	case <-c.worker.pace.wake: // a stop request or a new pace
	case <-c.worker.trims:
		c.worker.trim(c.ctx)
	case <-overdue:
		return true, c.abandon()
	case <-broken:
		return false, c.lanes[0].run.out.err()
	case <-c.ctx.Done():
		return false, c.ctx.Err()
	}
	return true, nil
}

// idleTurn is how long to wait at most when nothing is due: the kernel may have a warning.
const idleTurn = time.Second

// nextEvent returns how long it takes until something is due: a record to try again, the end of
// a pause, or logs to sync.
func (c *concurrent) nextEvent(now time.Time) time.Duration {
	if c.lanes.rereads() {
		return 0
	}
	wait := idleTurn
	if waiting := c.records.waiting; len(waiting) > 0 {
		wait = min(wait, waiting[0].due.Sub(now))
	}
	if pause := c.throttle.window.Pause(now); pause > 0 {
		wait = min(wait, pause)
	}
	if handBack, paused := c.worker.pace.paused(); paused {
		wait = min(wait, handBack.Sub(now))
	}
	if c.logs.every > 0 && c.logs.syncer.Dirty() {
		wait = min(wait, c.logs.due.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// take takes a group from the reader. Records with a logged answer are settled.
func (c *concurrent) take(l *lane, batch readBatch, ok bool) error {
	if !ok {
		l.read = true
		return nil
	}
	if batch.err != nil {
		return batch.err
	}
	g := batch.group
	l.add(g)
	c.worker.computed.Add(int64(len(g.task.batch.Records) - len(g.task.sent))) // rejected before the kernel
	for i := range g.task.sent {
		if err := c.place(g, i); err != nil {
			return err
		}
	}
	return l.complete(g)
}

// place finds out what is known about a record: its answer, or nothing.
func (c *concurrent) place(g *group, i int) error {
	number := g.task.batch.Records[g.task.sent[i]].Index
	f := &flight{number: number, record: g.task.toCompute(i, i+1).At(0), group: g, at: i}
	switch {
	case g.lane.log.Has(number):
		logged, err := g.lane.logged(number)
		if err != nil {
			return err
		}
		g.answer(f, logged)
		c.judge(nil)
	case c.worker.setup.GiveUp != nil:
		g.answer(f, verdict{fault: c.worker.setup.GiveUp})
	case g.task.pending != nil:
		f.bound = true
		c.records.fetching[number] = f
		reader, fetched := g.lane.run.reader, c.fetched
		reader.fetch.arrive(reader.ctx, g.task.pending[i], func(files [][]byte, failure *fault.Error) {
			select {
			case fetched <- fetchedFiles{f, g, files, failure}:
			case <-reader.ctx.Done():
			}
		})
	default:
		c.records.fresh = insert(c.records.fresh, f)
	}
	return nil
}

// judge adds an answer to the first ones: does the kernel fail on everything?
func (c *concurrent) judge(failure *fault.Error) {
	c.worker.opinion.add(slices.Values([]*fault.Error{failure}), c.search.deaths >= sampledDeaths)
}

// abandon gives up the records at the kernel: the job is stopping and their drain timeout
// has expired. The next run computes those whose answers have not arrived by now.
func (c *concurrent) abandon() error {
	c.worker.log.Warn("abandoned the records in flight: the job is stopping and the drain timeout expired", "records", len(c.records.flying))
	c.worker.host.kill()
	if err := c.logArrived(); err != nil {
		return err
	}
	for _, l := range c.arrived {
		c.spend.add(l.answer)
	}
	c.arrived = nil
	clear(c.records.flying)
	for _, l := range c.lanes {
		l.halted = true
	}
	return nil
}

// logs makes the early logs durable, once per checkpoint interval, in a goroutine of its own:
// results behind a slow record are not in the output, which is made durable otherwise.
type logs struct {
	syncer *early.Syncer
	every  time.Duration // 0 for never
	due    time.Time
}

func newLogs(every time.Duration) logs {
	return logs{syncer: early.NewSyncer(), every: every, due: time.Now().Add(every)}
}

func (l *logs) sync() error {
	if l.every <= 0 || time.Now().Before(l.due) {
		return nil
	}
	begun, err := l.syncer.Begin()
	if begun {
		crash.Point("worker-syncs-logs")
		l.due = time.Now().Add(l.every)
	}
	return fault.JobFiles.Wrap(err)
}

// finish makes the logs durable that this worker leaves.
func (l *logs) finish(log *slog.Logger) {
	if err := l.syncer.Finish(); err != nil {
		log.Error("sync early logs", "error", err)
	}
}
