package worker

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/early"
)

// concurrent is the work of a kernel that computes records independently of each other. It keeps a
// number of records in flight, across groups and chunks, restores their order, and logs each
// answer at once. Only Answer runs in other goroutines, one for each record.
//
//	reader ──► groups ──► records in flight ──► answers ──► early log
//	              └── complete, in input order ──► writer
type concurrent struct {
	loop     *loop
	worker   *Worker
	records  roster
	ready    chan struct{} // signals that something is in landed or fetched
	landed   inbox[landing]
	arrived  []landing // taken from landed
	fetched  inbox[fetchedFiles]
	throttle throttle
	search   suspicion
	spend    spend
	busy     bool
	busyFrom time.Time
}

// inbox passes values from other goroutines to the loop.
type inbox[T any] struct {
	mu    sync.Mutex
	list  []T
	ready chan<- struct{}
}

func (b *inbox[T]) put(value T) {
	b.mu.Lock()
	b.list = append(b.list, value)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// takeAll removes and returns what was put.
func (b *inbox[T]) takeAll() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
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

func newConcurrent(c *loop) (*concurrent, error) {
	ready := make(chan struct{}, 1)
	n := &concurrent{
		loop: c, worker: c.worker, records: newRoster(), throttle: newThrottle(c.worker.host.info.Concurrency),
		ready: ready, landed: inbox[landing]{ready: ready}, fetched: inbox[fetchedFiles]{ready: ready},
	}
	return n, n.spend.open(c.worker.setup)
}

// end discards the records that the kernel still computes: it would answer for a job that is done.
func (c *concurrent) end() {
	if len(c.records.flying) > 0 {
		c.worker.host.kill()
	}
	c.spend.figures.Close()
}

// follow obeys the stop requests for a lane.
func (c *concurrent) follow(l *lane) (ended bool) {
	if ended = l.over(&c.records); ended {
		c.records.forget(l)
	}
	return ended
}

func (c *concurrent) mayTrim() bool { return true }

// feed counts the time in which the kernel had work, and sends it what it may have.
func (c *concurrent) feed() (next pause, err error) {
	now := time.Now()
	lanes := c.loop.lanes
	if c.busy && len(lanes) > 0 {
		lanes[0].out.addBusy(now.Sub(c.busyFrom))
	}
	c.busy, c.busyFrom = len(c.records.flying) > 0, now
	switch {
	case len(lanes) == 0:
		c.search.limit = 0 // the last suspect was answered, and ended its chunk
	case c.throttle.holding:
		lanes[0].out.awaits(wire.AwaitsServer)
	case c.busy:
		lanes[0].out.awaits("")
	}
	if c.spend.isOver(len(c.records.flying), now) {
		c.worker.send(wire.Message{Spent: &wire.Spent{Blind: c.spend.blind()}})
	}
	for _, got := range c.fetched.takeAll() {
		if err := c.addFiles(got); err != nil {
			return next, err
		}
	}
	if err := c.sendAll(); err != nil {
		return next, err
	}
	if c.search.limit == 0 {
		c.worker.host.alone.end()
	}
	for _, l := range lanes {
		if l.groups.spilled() {
			if err := l.reread(); err != nil {
				return next, err
			}
		}
	}
	next.landed, next.longest, next.idle = c.ready, c.nextEvent(time.Now()), len(c.records.flying) == 0
	next.files = next.idle && !c.throttle.holding && len(c.records.fetching) > 0
	if l := lanes.reading(); l != nil && c.records.unsent(l) == nil && lanes.holdLess(1, c.throttle.full) && c.records.mayFetch(c.worker, lanes.held()) {
		next.reading = l
	}
	return next, nil
}

// sendAll sends records until the kernel has as many as it may.
func (c *concurrent) sendAll() error {
	if len(c.loop.lanes) == 0 {
		return nil
	}
	if c.worker.host.dead() {
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
		if running, err := c.loop.reopen(c.loop.lanes[0]); !running {
			return err
		}
		if !c.spend.reserve() {
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
	return c.records.next(c.throttle.refuses(), fresh), most
}

// send sends a record to the kernel.
func (c *concurrent) send(f *flight) {
	c.records.send(f)
	host, started := c.worker.host, time.Now()
	limit := host.limit(load{records: 1, bytes: f.record.Size()})
	f.started, f.round = started, c.throttle.window.round
	host.process.Ask(f.record, limit, func(a plugins.Answer, expired bool) {
		c.landed.put(landing{flight: f, answer: a, expired: expired, limit: limit, took: time.Since(started)})
	})
	crash.Point("worker-mid-batch")
}

// nextEvent returns how long it takes until something is due: a record to try again, the end of
// a pause, or logs to sync.
func (c *concurrent) nextEvent(now time.Time) time.Duration {
	if c.loop.lanes.rereads() {
		return 0
	}
	wait := idleTurn
	if waiting := c.records.waiting; len(waiting) > 0 {
		wait = min(wait, waiting[0].due.Sub(now))
	}
	if pause := c.throttle.window.pause(now); pause > 0 {
		wait = min(wait, pause)
	}
	if handBack, paused := c.worker.pace.paused(); paused {
		wait = min(wait, handBack.Sub(now))
	}
	if c.loop.logs.every > 0 && c.loop.logs.syncer.Dirty() {
		wait = min(wait, c.loop.logs.due.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// add takes a group from the reader. Records with a logged answer are settled.
func (c *concurrent) add(g *group) error {
	g.lane.add(g)
	c.worker.computed.Add(int64(len(g.task.batch.Records) - len(g.task.sent))) // rejected before the kernel
	for i := range g.task.sent {
		if err := c.place(g, i); err != nil {
			return err
		}
	}
	return c.complete(g)
}

// place finds out what is known about a record: its answer, or nothing.
func (c *concurrent) place(g *group, i int) error {
	number := g.task.batch.Records[g.task.sent[i]].Index
	f := &flight{number: number, record: g.task.toCompute(i, i+1).At(0), group: g, at: i}
	switch {
	case g.lane.log.Has(number):
		logged, err := logged(g.lane.log, number)
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
		reader := g.lane.reader
		reader.fetch.arrive(reader.ctx, g.task.pending[i], func(files [][]byte, failure *fault.Error) {
			c.fetched.put(fetchedFiles{f, files, failure})
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

// abandon gives up the records at the kernel whose answers have not arrived by now.
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
	for _, l := range c.loop.lanes {
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
