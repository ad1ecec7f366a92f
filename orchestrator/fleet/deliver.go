package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// progress records how far a task has come.
func (s *slotRun) progress(p wire.Progress) {
	if h := s.hand.find(p.Chunk); h != nil && h.probe == nil {
		h.done, h.ahead, h.faulty = p.Counts, p.Ahead, max(h.faulty, p.Faulty)
		s.fleet.suspects.progress(s.slot, s.hand.load().outcomes)
	}
	l := s.hand.load()
	s.fleet.roster.holds(s.slot, l.size, l.done)
	s.fleet.roster.measured(s.slot, p)
	s.fleet.ledger.progress(s.slot.Number, l.counts, l.kept, p.Latency)
	s.fleet.Emit(event.Progress{
		Slot: s.slot.Number, Device: s.slot.Name, Chunk: s.hand.current.done, Records: s.hand.current.chunk.Records,
		Job: s.fleet.ledger.done(), Answers: s.fleet.ledger.answered(), Ahead: max(0, l.kept-s.hand.current.done.Records),
		Held: l.size, Computed: s.fleet.roster.computed(s.slot), Awaits: p.Awaits,
		Total: s.fleet.ledger.total(), Estimate: s.fleet.ledger.estimate(), Usage: s.fleet.Usage(), Latency: p.Latency,
	})
	s.fleet.checkFailures()
}

// errNotGiven: there is a bug in the worker.
var errNotGiven = errors.New("a worker reports about a chunk that it was not given")

// handBack requeues the part of a task that the worker will not reach, while the worker
// finishes the rest.
func (s *slotRun) handBack(left wire.Remainder) error {
	t := s.hand.find(left.Chunk)
	if t == nil {
		return errNotGiven
	}
	if left.Rest.Records == 0 {
		s.fleet.roster.handedBack(s.slot)
		return nil
	}
	tasks, err := s.fleet.share(s.slot, task{chunk: left.Rest, attempts: t.attempts, tried: t.tried}, left.InFlight)
	t.chunk = t.chunk.Before(left.Rest)
	s.fleet.roster.handedBack(s.slot)
	s.noteLoad()
	s.fleet.queue.add(tasks...)
	return err
}

// deliver takes a finished segment and requeues the rest of the task, unless the worker
// continues with it. again: a record that did not fit may be retried on the same device.
func (s *slotRun) deliver(ctx context.Context, done wire.Done, again bool) error {
	h := s.hand.find(done.Chunk)
	if h == nil {
		return errNotGiven
	}
	if h.probe != nil {
		s.finishProbe(ctx, h, done)
		return nil
	}
	t, held := h.task, s.hand.load().size
	counts := done.Segment.Tally.Counts
	if counts.Records > 0 {
		s.useful, s.vain = true, 0
	}
	before := h.done.Records
	h.done, h.faulty = chunk.Counts{}, 0
	s.fleet.suspects.book(s.slot, outcomesOf(counts, done.Stats.Faulty), s.hand.load().outcomes)
	suspended := s.suspend(h, done)
	h.done, h.sample, h.ahead = chunk.Counts{}, nil, max(0, before+h.ahead-counts.Records)
	if !done.Continues {
		h.ahead = 0
		held -= h.chunk.Records
	} else {
		held -= counts.Records
	}
	s.fleet.roster.finished(s.slot, done)
	if !s.fleet.roster.tuning(s.slot) {
		s.fleet.tuned.found(s.slot, done.Stats.BatchSize)
	}
	if rest := s.hand.load(); suspended {
		s.fleet.ledger.progress(s.slot.Number, rest.counts, rest.kept, nil)
	} else {
		s.fleet.ledger.finish(s.slot.Number, t, done, rest.counts, rest.kept)
		s.fleet.release(ctx, false)
		s.fleet.chunkDone(result{t, s.slot, done}, rest.kept, max(0, held))
		s.fleet.checkFailures()
	}
	var tasks []task
	var err error
	if done.Rest != nil && !done.Continues {
		tasks, err = s.fleet.share(s.slot, task{chunk: *done.Rest, attempts: t.attempts, tried: t.tried}, 0)
	}
	if done.Elsewhere != nil {
		tried := t.tried
		if !again {
			tried = addDevice(t.tried, s.slot.Key())
		}
		tasks = append(tasks, task{chunk: *done.Elsewhere, attempts: t.attempts, tried: tried})
	}
	if done.Continues {
		h.chunk = *done.Rest
		return nil
	}
	s.hand.remove(h)
	s.noteLoad()
	s.fleet.queue.giveBack(tasks...)
	return err
}

// noteFirst records the outcome of the worker's first records.
func (s *slotRun) noteFirst(ctx context.Context, first *judge.First) {
	if first != nil {
		s.fleet.ledger.hear(s.slot.Number, first)
		s.fleet.release(ctx, false)
	}
}

// noteSearch reports, once in a job, that a batch killed the kernel: nothing but the
// bisection happens for a while.
func (s *slotRun) noteSearch(ctx context.Context, search wire.Search) {
	if search.Lost != nil {
		s.fleet.searchNotice.Do(func() {
			s.fleet.Emit(event.Notice{Text: fmt.Sprintf("%s: a whole batch failed: %s; bisecting it to isolate the bad records", s.slot.Name, search.Lost.Message)})
		})
	}
	if search.Blameless != nil {
		s.noteBlameless(*search.Blameless)
	}
	s.noteFirst(ctx, search.First)
}

// noteBlameless handles a batch that fails although none of its records does. The output may
// still be right, but computing each record alone takes long and hides a mistake in the kernel:
// without any results so far the job stops, otherwise it warns once.
func (s *slotRun) noteBlameless(b wire.Blameless) {
	text := fmt.Sprintf("%d records failed twice as a batch with: %s; each of them succeeds alone", b.Records, b.Fault.Message)
	if b.Alone && !s.fleet.ledger.hasResults() {
		s.fleet.Stop(fault.FailsInBatches.New("the kernel fails on batches: %s: fix it, or compute records one by one with batches of 1", text).
			WithDetail(b.Fault.Detail).InStep(b.Fault.Step).Set("batch-size"))
		return
	}
	s.fleet.blamelessNotice.Do(func() {
		text := fmt.Sprintf("%s: warning: %s or with fewer others, which takes longer", s.slot.Name, text)
		if b.Fault.Detail != "" {
			text += "\n" + b.Fault.Detail
		}
		s.fleet.Emit(event.Notice{Text: text})
	})
}

// noteHolding reports that a kernel can try no record for now, or that it can again.
func (s *slotRun) noteHolding(holding wire.Holding) {
	s.fleet.stall.answered.Store(true)
	text := "continuing"
	if holding.Why != "" {
		text = "waiting: " + holding.Why
	}
	s.fleet.Emit(event.Notice{Text: s.slot.Name + ": " + text})
}

// release delivers the segments that may be committed. If the kernel fails on everything, the
// job stops instead: what is being computed is useless. end: all workers are done, and the
// evidence about the kernel is complete.
func (f *Fleet) release(ctx context.Context, end bool) {
	segments, why := f.ledger.release(end, !f.state.running())
	if why != nil {
		f.Stop(why)
		return
	}
	f.Deliver(ctx, segments)
}

// checkFailures drains the job when more records failed than the user allows. Those of
// earlier runs do not count: a user who resumes has seen them.
func (f *Fleet) checkFailures() {
	if f.Halt == nil {
		return
	}
	done, before := f.ledger.done(), f.Before
	if gpus := f.roster.gpus(); len(gpus) > 1 { // those in progress may be a device's fault
		done = f.ledger.finished()
	}
	failed, records := done.Failed-before.Failed, done.Records-before.Records
	if f.Halt(failed, records, f.ledger.total()) {
		f.Drain(fault.LimitReached.New("stopped because %d of %d records failed", failed, records).Set("halt"), f.DrainTimeout)
	}
}
