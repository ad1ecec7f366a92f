package worker

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/congestion"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
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
	worker *Worker
	ctx    context.Context
	lanes  []*lane // by their first records

	flights map[int64]*flight // records at the kernel, by number
	landed  *landings
	arrived []landing // together; those before at are taken
	at      int
	queue   []*flight // to be sent again, before any new record, by number
	waiting []*flight // for another attempt, the first due first

	fetching map[int64]*flight // that wait for their files, by number
	fetched  chan fetchedFiles
	ready    []*flight // that have their files and were never sent, by number

	search  suspicion
	usual   time.Duration     // how long an answer took lately, on average; 0 before the first
	heard   time.Time         // when the kernel last answered
	ceiling int               // the most records in flight; less than the kernel's number after it ran out of memory
	window  congestion.Window // of a server that the kernel asks

	syncer     *early.Syncer
	syncDue    time.Time
	spend      spend
	first      judge.First
	judged     bool
	holding    bool      // the kernel can try no record for now
	holdingSet time.Time // when that last changed
	outside    int       // records in a row that were blamed for a signal from outside
	deaths     int       // records in a row that killed a kernel which has never computed anything
	busy       bool
	busyFrom   time.Time
	alarm      alarm
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
		worker: w, ctx: ctx, flights: make(map[int64]*flight), ceiling: w.host.info.Concurrency,
		window: congestion.New(w.host.info.Concurrency),
		landed: &landings{wake: make(chan struct{}, 1)}, fetching: make(map[int64]*flight), fetched: make(chan fetchedFiles),
		syncer: early.NewSyncer(), syncDue: time.Now().Add(w.setup.Checkpoint), alarm: newAlarm(),
	}
}

// serveRecords computes the assigned chunks with a concurrent kernel.
func (w *Worker) serveRecords(ctx context.Context) {
	c := newConcurrent(ctx, w)
	if err := c.spend.open(w.setup); err != nil {
		w.fail(err)
		return
	}
	defer func() { c.spend.figures.Close() }()
	w.judged = true // the writer would judge in input order: here the first answers count
	for {
		more, err := c.turn()
		if err != nil {
			for _, l := range c.lanes {
				l.endReread()
				_, _ = l.run.close(err)
			}
			w.fail(err)
			return
		}
		if !more {
			c.end()
			return
		}
	}
}

// end closes the kernel and discards the records that it still computes.
func (c *concurrent) end() {
	if len(c.flights) > 0 {
		c.worker.host.kill()
	}
	_ = c.worker.host.close() // it is logged
	c.syncRest()
}

// renew forgets the job that is done.
func (c *concurrent) renew() error {
	if len(c.flights) > 0 {
		c.worker.host.kill() // it would answer for records of that job
	}
	c.syncRest()
	c.spend.figures.Close()
	fresh := newConcurrent(c.ctx, c.worker)
	fresh.first, fresh.judged = c.first, c.judged // of the kernel
	*c = *fresh
	return c.spend.open(c.worker.setup)
}

// begin starts reading a chunk. Unless the chunk is new, it imports the answers that are
// logged for it.
func (c *concurrent) begin(assign wire.Assign) error {
	if c.worker.takeRenewed() {
		if err := c.renew(); err != nil {
			return err
		}
	}
	first, end := assign.Chunk.First, assign.Chunk.First+assign.Chunk.Records
	l := &lane{part: assign.Part, log: early.New(filepath.Dir(assign.Part), first, end, c.syncer)}
	if !assign.New {
		if err := l.log.Import(); err != nil {
			return fault.Wrap(fault.Storage, err)
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

// turn ends the lanes that are over, sends records to the kernel, and then waits for
// something to happen. It returns false when there are no more chunks.
func (c *concurrent) turn() (more bool, err error) {
	c.countBusy()
	c.reportSpent()
	if err := c.syncLogs(); err != nil {
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

// countBusy counts the time in which the kernel had work.
func (c *concurrent) countBusy() {
	now := time.Now()
	if c.busy && len(c.lanes) > 0 {
		c.lanes[0].run.addBusy(now.Sub(c.busyFrom))
	}
	c.busy, c.busyFrom = len(c.flights) > 0, now
	switch {
	case len(c.lanes) == 0:
	case c.holding:
		c.lanes[0].run.out.awaits(wire.AwaitsServer)
	case c.busy:
		c.lanes[0].run.out.awaits("")
	}
}

// step waits for something to happen.
func (c *concurrent) step() (more bool, err error) {
	var batches <-chan readBatch
	reading := c.reading()
	if reading != nil && reading.unfed() == 0 && c.hasRoom() && c.mayFetch() {
		batches = reading.run.reader.batches
	}
	for _, l := range c.lanes {
		if l.rereads() {
			if err := c.reread(l); err != nil {
				return false, err
			}
		}
	}
	var broken, overdue <-chan struct{}
	if len(c.lanes) > 0 {
		broken, overdue = c.lanes[0].run.out.broken, c.worker.stops.overdue
	}
	waited := time.Now()
	c.alarm.set(waited.Add(c.nextEvent()))
	select {
	case batch, ok := <-batches:
		if len(c.flights) == 0 {
			reading.run.stats.Input += time.Since(waited)
		}
		return true, c.take(reading, batch, ok)
	case <-c.landed.wake:
		return true, c.landAll()
	case got := <-c.fetched:
		return true, c.takeFiles(got)
	case assign, more := <-c.worker.assigned:
		switch {
		case more:
			return true, c.begin(assign)
		case len(c.lanes) > 0:
			return false, fault.New(fault.Canceled, "the worker is exiting")
		}
		return false, nil
	case <-c.alarm.timer.C:
		c.alarm.at = time.Time{}
		for _, l := range c.lanes {
			l.run.out.catchUp()
		}
		if !c.holding && len(c.flights) == 0 && len(c.fetching) > 0 && len(c.lanes) > 0 && time.Since(waited) >= fetchShown {
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

// landAll takes all answers that have arrived, to log them together and to send the next records
// together.
func (c *concurrent) landAll() error {
	c.arrived = c.landed.take(c.arrived)
	if err := c.logArrived(); err != nil {
		return err
	}
	for l, more := c.nextArrived(); more; l, more = c.nextArrived() {
		if err := c.land(l); err != nil {
			return err
		}
	}
	return nil
}

// nextArrived returns the next of the answers that have arrived together.
func (c *concurrent) nextArrived() (l landing, more bool) {
	if c.at == len(c.arrived) {
		clear(c.arrived)
		c.arrived, c.at = c.arrived[:0], 0
		return landing{}, false
	}
	c.at++
	return c.arrived[c.at-1], true
}

// logArrived logs the answers that have arrived together.
func (c *concurrent) logArrived() error {
	for _, l := range c.arrived {
		if c.flights[l.flight.number] == l.flight && l.answer.Verdict < plugins.Failed {
			if err := logAnswer(l, (*early.Log).Put); err != nil {
				return err
			}
		}
	}
	for _, l := range c.lanes {
		if err := l.log.Flush(); err != nil {
			return fault.Wrap(fault.Storage, err)
		}
	}
	return nil
}

// idleTurn is how long to wait at most when nothing is due: the kernel may have a warning.
const idleTurn = time.Second

// nextEvent returns how long it takes until something is due: a record to try again, the end of
// a pause, or logs to sync.
func (c *concurrent) nextEvent() time.Duration {
	wait := idleTurn
	for _, l := range c.lanes {
		if l.rereads() {
			return 0
		}
	}
	if len(c.waiting) > 0 {
		wait = min(wait, time.Until(c.waiting[0].due))
	}
	if pause := c.window.Pause(time.Now()); pause > 0 {
		wait = min(wait, pause)
	}
	if handBack, paused := c.worker.pace.paused(); paused {
		wait = min(wait, time.Until(handBack))
	}
	if c.worker.setup.Checkpoint > 0 && c.syncer.Dirty() {
		wait = min(wait, time.Until(c.syncDue))
	}
	return max(wait, time.Millisecond)
}

// judge adds an answer to the first ones: does the kernel fail on everything?
func (c *concurrent) judge(failure *fault.Error) {
	if c.judged {
		return
	}
	before := c.first
	c.first = before.Extend(func(yield func(*fault.Error) bool) { yield(failure) })
	c.first.Sampled = c.deaths >= sampledDeaths
	c.judged = c.first.Settled()
	if c.first.Matters(before) {
		first := c.first
		c.worker.send(wire.Message{Search: &wire.Search{First: &first}})
	}
}

// sampledDeaths records must kill a kernel that has never computed anything before that
// counts as a sample of all: each costs several starts.
const sampledDeaths = 3

// answerOf returns the verdict of a logged or new answer.
func answerOf(a early.Answer) plugins.Answer {
	return plugins.Answer{Verdict: plugins.Verdict(a.Verdict), Lines: a.Lines, Nulls: a.Nulls}
}

// syncLogs makes the logs durable, once per checkpoint interval, in a goroutine of its own:
// results behind a slow record are not in the output, which is made durable otherwise.
func (c *concurrent) syncLogs() error {
	if c.worker.setup.Checkpoint <= 0 || time.Now().Before(c.syncDue) {
		return nil
	}
	begun, err := c.syncer.Begin()
	if begun {
		crash.Point("worker-syncs-logs")
		c.syncDue = time.Now().Add(c.worker.setup.Checkpoint)
	}
	return fault.Wrap(fault.Storage, err)
}

// syncRest makes the logs durable that this worker leaves.
func (c *concurrent) syncRest() {
	if err := c.syncer.Finish(); err != nil {
		c.worker.log.Error("sync early logs", "error", err)
	}
}
