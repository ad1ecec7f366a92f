package worker

import (
	"context"
	"path/filepath"
	"time"

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
type concurrent struct {
	worker *Worker
	ctx    context.Context
	lane   *lane // the chunk that is being computed; nil between two
	next   *lane // the one after it, nil until one is assigned

	flights map[int64]*flight // records at the kernel, by number
	landed  *landings
	arrived []landing // together; those before at are taken
	at      int
	queue   []*flight         // to be sent again, before any new record, by number
	waiting []*flight         // for another attempt, the first due first
	parked  map[int64]*flight // sent before, of a chunk that is not read again yet

	fetching map[int64]*flight // that wait for their files, by number
	fetched  chan fetchedFiles
	ready    []*flight // that have their files and were never sent, by number

	search  suspicion
	ceiling int // the most records in flight; less than the kernel's number after it ran out of memory

	log      *early.Log // nil before the first chunk
	spend    spend
	first    judge.First
	judged   bool
	holding  bool // the kernel can try no record for now
	outside  int  // records in a row that were blamed for a signal from outside
	deaths   int  // records in a row that killed a kernel which has never computed anything
	cut      bool // the current chunk ends with records in flight
	busy     bool
	busyFrom time.Time
}

func newConcurrent(ctx context.Context, w *Worker) *concurrent {
	return &concurrent{
		worker: w, ctx: ctx, flights: make(map[int64]*flight), parked: make(map[int64]*flight), ceiling: w.host.info.Concurrency,
		landed: &landings{wake: make(chan struct{}, 1)}, fetching: make(map[int64]*flight), fetched: make(chan fetchedFiles),
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
		more, err := c.nextLane()
		if err == nil && !more {
			c.end()
			return
		}
		var done wire.Done
		if err == nil {
			done, err = c.run()
		}
		if err != nil {
			w.fail(err)
			return
		}
		done.Sources, done.Warnings = w.host.takeSources(), w.host.takeWarnings()
		crash.Point("worker-part-closed")
		w.send(wire.Message{Done: &done})
	}
}

// end closes the kernel and discards the records that it still computes.
func (c *concurrent) end() {
	if len(c.flights) > 0 {
		c.worker.host.kill()
	}
	c.worker.host.close()
	if c.log != nil {
		c.log.Close()
	}
}

// nextLane takes the chunk that was begun during the last one, or waits for the next. It
// returns false when there are no more. Answers that arrive meanwhile are logged.
func (c *concurrent) nextLane() (more bool, err error) {
	c.lane, c.next = c.next, nil
	for c.lane == nil {
		select {
		case <-c.worker.trims:
			c.worker.trim(c.ctx)
		case <-c.landed.wake:
			if err := c.landAll(); err != nil {
				return false, err
			}
		case assign, more := <-c.worker.assigned:
			if !more {
				return false, nil
			}
			if c.lane, err = c.begin(assign); err != nil {
				return false, err
			}
		case <-c.ctx.Done():
			return false, c.ctx.Err()
		}
	}
	return true, nil
}

// renew forgets the job that is done.
func (c *concurrent) renew() error {
	if len(c.flights) > 0 {
		c.worker.host.kill() // it would answer for records of that job
	}
	if c.log != nil {
		c.log.Close()
	}
	c.spend.figures.Close()
	fresh := newConcurrent(c.ctx, c.worker)
	fresh.first, fresh.judged = c.first, c.judged // of the kernel
	*c = *fresh
	return c.spend.open(c.worker.setup)
}

// begin starts reading a chunk, and imports the answers that are logged for it.
func (c *concurrent) begin(assign wire.Assign) (*lane, error) {
	if c.worker.takeRenewed() {
		if err := c.renew(); err != nil {
			return nil, err
		}
	}
	if c.log == nil {
		c.log = early.New(filepath.Dir(assign.Part))
	}
	if err := c.log.Import(assign.Chunk.First, assign.Chunk.First+assign.Chunk.Records); err != nil {
		return nil, fault.Wrap(fault.Storage, err)
	}
	run, err := c.worker.begin(c.ctx, assign)
	if err != nil {
		return nil, err
	}
	return &lane{run: run, part: assign.Part}, nil
}

// run computes until the current chunk is finished or must end.
func (c *concurrent) run() (wire.Done, error) {
	c.cut = false
	ended, err := false, error(nil)
	for err == nil && !ended {
		c.countBusy()
		c.reportSpent()
		if ended = c.stop(); !ended {
			err = c.step()
		}
	}
	var begun int64
	if err == nil {
		begun, err = c.close(c.cut)
	}
	c.lane.endReread()
	done, err := c.lane.run.close(err)
	done.Begun = begun
	if err == nil {
		return done, nil
	}
	if c.next != nil {
		_, _ = c.next.run.close(err)
	}
	return done, err
}

// countBusy counts the time in which the kernel had work.
func (c *concurrent) countBusy() {
	now := time.Now()
	if c.busy {
		c.lane.run.addBusy(now.Sub(c.busyFrom))
	}
	c.busy, c.busyFrom = len(c.flights) > 0, now
}

// step sends records to the kernel, and then waits for something to happen.
func (c *concurrent) step() error {
	if err := c.feed(); err != nil {
		return err
	}
	var batches <-chan readBatch
	reading := c.reading()
	if reading != nil && reading.unfed() == 0 && c.hasRoom() && c.mayFetch() {
		batches = reading.run.reader.batches
	}
	var assigned <-chan wire.Assign
	if c.next == nil {
		assigned = c.worker.assigned
	}
	for _, l := range c.lanes() {
		if l.rereads() {
			if err := c.reread(l); err != nil {
				return err
			}
		}
	}
	timer := time.NewTimer(c.nextEvent())
	defer timer.Stop()
	waited := time.Now()
	select {
	case batch, ok := <-batches:
		if len(c.flights) == 0 {
			c.lane.run.stats.Input += time.Since(waited)
		}
		return c.take(reading, batch, ok)
	case <-c.landed.wake:
		return c.landAll()
	case got := <-c.fetched:
		return c.takeFiles(got)
	case assign, more := <-assigned:
		if !more {
			return fault.New(fault.Canceled, "the worker is exiting")
		}
		var err error
		c.next, err = c.begin(assign)
		return err
	case <-timer.C:
		if list := c.worker.host.takeWarnings(); len(list) > 0 {
			c.worker.send(wire.Message{Warned: &wire.Warned{Warnings: list}})
		}
	case <-c.worker.pace.wake: // a stop request or a new pace
	case <-c.worker.trims:
		c.worker.trim(c.ctx)
	case <-c.worker.stops.overdue:
		c.abandon()
	case <-c.lane.run.out.broken:
		return c.lane.run.out.err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	return nil
}

// landAll takes the answers that have arrived together, so that they are logged, and the next
// records go out, together.
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
			if err := c.logAnswer(l, (*early.Log).Put); err != nil {
				return err
			}
		}
	}
	return fault.Wrap(fault.Storage, c.log.Flush())
}

// idleTurn is how long to wait at most when nothing is due: the kernel may have a warning.
const idleTurn = time.Second

// nextEvent returns how long nothing is due: a record to try again, or the end of a pause.
func (c *concurrent) nextEvent() time.Duration {
	wait := idleTurn
	for _, l := range c.lanes() {
		if l.rereads() {
			return 0
		}
	}
	if len(c.waiting) > 0 {
		wait = min(wait, time.Until(c.waiting[0].due))
	}
	if handBack, paused := c.worker.pace.paused(); paused {
		wait = min(wait, time.Until(handBack))
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
