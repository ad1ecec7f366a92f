package orchestrator

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// progress records how far a task has come.
func (s *slotRun) progress(p wire.Progress) {
	if h := s.find(p.Chunk); h != nil && h.probe == nil {
		h.done, h.ahead, h.faulty = p.Counts, p.Ahead, max(h.faulty, p.Faulty)
		s.job.suspects.progress(s.slot, s.outcomes())
	}
	s.noteLoad()
	s.job.fleet.measured(s.slot, p)
	s.job.ledger.progress(s.slot.Number, s.counts(), s.answered(), p.Latency)
	s.job.emit(Progress{
		Slot: s.slot.Number, Device: s.slot.Name, Chunk: s.current.done, Records: s.current.chunk.Records,
		Job: s.job.ledger.done(), Answers: s.job.ledger.answered(), Ahead: s.beyond(s.current.done),
		Held: s.heldRecords(), Computed: s.job.fleet.computed(s.slot), Awaits: p.Awaits,
		Total: s.job.ledger.total(), Estimate: s.job.ledger.estimate(), Usage: s.job.figures.All(), Latency: p.Latency,
	})
	s.job.checkFailures()
}

// errNotGiven: there is a bug in the worker.
var errNotGiven = errors.New("a worker reports about a chunk that it was not given")

// handBack requeues the part of a task that the worker will not reach, while the worker
// finishes the rest.
func (s *slotRun) handBack(left wire.Remainder) error {
	t := s.find(left.Chunk)
	if t == nil {
		return errNotGiven
	}
	if left.Rest.Records == 0 {
		s.job.fleet.handedBack(s.slot)
		return nil
	}
	tasks, err := s.job.share(s.slot, task{chunk: left.Rest, attempts: t.attempts, tried: t.tried}, left.InFlight)
	t.chunk = t.chunk.Before(left.Rest)
	s.job.fleet.handedBack(s.slot)
	s.noteLoad()
	s.job.queue.add(tasks...)
	return err
}

// deliver takes a finished segment and requeues the rest of the task, unless the worker
// continues with it. again: a record that did not fit may be retried on the same device.
func (s *slotRun) deliver(ctx context.Context, done wire.Done, again bool) error {
	h := s.find(done.Chunk)
	if h == nil {
		return errNotGiven
	}
	if h.probe != nil {
		s.finishProbe(ctx, h, done)
		return nil
	}
	t, held := h.task, s.heldRecords()
	counts := done.Segment.Tally.Counts
	if counts.Records > 0 {
		s.useful, s.vain = true, 0
	}
	before := h.done.Records
	h.done, h.faulty = chunk.Counts{}, 0
	s.job.suspects.book(s.slot, outcomesOf(counts, done.Stats.Faulty), s.outcomes())
	suspended := s.suspend(h, done)
	h.done, h.sample, h.ahead = chunk.Counts{}, nil, max(0, before+h.ahead-counts.Records)
	if !done.Continues {
		h.ahead = 0
		held -= h.chunk.Records
	} else {
		held -= counts.Records
	}
	s.job.fleet.finished(s.slot, done)
	if !s.job.fleet.tuning(s.slot) {
		s.job.tuned.found(s.slot, done.Stats.BatchSize)
	}
	if suspended {
		s.job.ledger.progress(s.slot.Number, s.counts(), s.answered(), nil)
	} else {
		s.job.ledger.finish(s.slot.Number, t, done, s.counts(), s.answered())
		s.job.releaseHeld(ctx)
		s.job.emit(ChunkDone{
			Slot: s.slot.Number, Device: s.slot.Name, First: t.chunk.First, Counts: done.Segment.Tally,
			Job: s.job.ledger.done(), Answers: s.job.ledger.answered(), Ahead: s.beyond(chunk.Counts{}),
			Held: max(0, held), Computed: s.job.fleet.computed(s.slot),
			Total: s.job.ledger.total(), Estimate: s.job.ledger.estimate(), Stats: newSegmentStats(done.Stats), Usage: s.job.figures.All(),
		})
		s.job.checkFailures()
	}
	var tasks []task
	var err error
	if done.Rest != nil && !done.Continues {
		tasks, err = s.job.share(s.slot, task{chunk: *done.Rest, attempts: t.attempts, tried: t.tried}, 0)
	}
	if done.Elsewhere != nil {
		tried := t.tried
		if !again {
			tried = addDevice(t.tried, s.slot.key())
		}
		tasks = append(tasks, task{chunk: *done.Elsewhere, attempts: t.attempts, tried: tried})
	}
	if finished := t.chunk; !suspended {
		finished.Records = counts.Records
		s.job.source.Release(finished)
	}
	if done.Continues {
		h.chunk = *done.Rest
		return nil
	}
	s.remove(h)
	s.noteLoad()
	s.job.queue.giveBack(tasks...)
	return err
}

// noteFirst records the outcome of the worker's first records.
func (s *slotRun) noteFirst(ctx context.Context, first *judge.First) {
	if first != nil {
		s.job.ledger.hear(s.slot.Number, first)
		s.job.releaseHeld(ctx)
	}
}

// noteSearch reports, once in a job, that a batch killed the kernel: nothing but the
// bisection happens for a while.
func (s *slotRun) noteSearch(ctx context.Context, search wire.Search) {
	if search.Lost != nil {
		s.job.searchNotice.Do(func() {
			s.job.emit(Notice{Text: fmt.Sprintf("%s: a whole batch failed: %s; bisecting it to isolate the bad records", s.slot.Name, search.Lost.Message)})
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
	if b.Alone && !s.job.ledger.hasResults() {
		s.job.stop(fault.New(fault.Incompatible, "the kernel fails on batches: %s: fix it, or compute records one by one with batches of 1", text).
			WithDetail(b.Fault.Detail).InStep(b.Fault.Step).Set("batch-size"))
		return
	}
	s.job.blamelessNotice.Do(func() {
		text := fmt.Sprintf("%s: warning: %s or with fewer others, which takes longer", s.slot.Name, text)
		if b.Fault.Detail != "" {
			text += "\n" + b.Fault.Detail
		}
		s.job.emit(Notice{Text: text})
	})
}

// noteHolding reports that a kernel can try no record for now, or that it can again.
func (s *slotRun) noteHolding(holding wire.Holding) {
	s.job.stall.answered.Store(true)
	text := "continuing"
	if holding.Why != "" {
		text = "waiting: " + holding.Why
	}
	s.job.emit(Notice{Text: s.slot.Name + ": " + text})
}

// releaseHeld passes the segments that may be committed to the committer. If the kernel fails
// on everything, the job stops instead: what is being computed is useless.
func (j *job) releaseHeld(ctx context.Context) { j.release(ctx, false) }

// releaseLast is releaseHeld when all workers are done: the evidence about the kernel is
// complete.
func (j *job) releaseLast(ctx context.Context) { j.release(ctx, true) }

func (j *job) release(ctx context.Context, end bool) {
	segments, why := j.ledger.release(end, !j.state.running())
	if why != nil {
		j.stop(why)
		return
	}
	j.committer.deliver(ctx, segments)
}

// checkFailures drains the job when more records failed than the user allows. Those of
// earlier runs do not count: a user who resumes has seen them.
func (j *job) checkFailures() {
	if j.config.Failures.Halt == (Halt{}) {
		return
	}
	done, before := j.ledger.done(), j.ledger.before
	if gpus := j.fleet.gpus(); len(gpus) > 1 { // those in progress may be a device's fault
		done = j.ledger.finished()
	}
	failed, records := done.Failed-before.Failed, done.Records-before.Records
	if j.config.Failures.Halt.reached(failed, records, j.ledger.total()) {
		j.drain(fault.New(fault.Stopped, "stopped because %d of %d records failed", failed, records).Set("halt"))
	}
}
