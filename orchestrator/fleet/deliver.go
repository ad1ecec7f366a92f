package fleet

import (
	"context"
	"errors"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

// progress records how far a task has come.
func (s *session) progress(p wire.Progress) {
	if p.Counts.Records+p.Ahead > 0 {
		s.fleet.answered.Store(true)
	}
	current := s.hand.current
	if p.Chunk == current.id && p.Counts.Records > 0 {
		s.startTimer()
	}
	if h := s.hand.find(p.Chunk); h != nil && h.Probe == nil {
		h.done, h.ahead, h.faulty = p.Counts, p.Ahead, max(h.faulty, p.Faulty)
	}
	l := s.hand.load()
	s.fleet.ledger.progress(s.member, l, p)
	job, answers := s.fleet.ledger.counts()
	s.fleet.Emit(event.Progress{
		Slot: s.slot.Number, Device: s.slot.Name, Chunk: current.done, Records: current.Chunk.Records,
		Job: job, Answers: answers, Ahead: max(0, l.kept-current.done.Records),
		Held: l.size, Computed: s.member.computed(), Awaits: p.Awaits,
		Total: s.fleet.ledger.total(), Estimate: s.fleet.ledger.estimate(), Usage: s.fleet.Usage(), Latency: p.Latency,
	})
	s.fleet.checkFailures()
	s.fleet.monitor.setMemory(s.slot, p.Memory)
}

// errNotGiven: there is a bug in the worker.
var errNotGiven = errors.New("a worker reports about a chunk that it was not given")

// handBack requeues the part of a task that the worker will not reach, while the worker
// finishes the rest.
func (s *session) handBack(left wire.Remainder) error {
	t := s.hand.find(left.Chunk)
	if t == nil {
		return errNotGiven
	}
	var tasks []queue.Task
	var err error
	if left.Rest.Records > 0 {
		tasks, err = s.fleet.share(s.member, t.Rest(left.Rest), left.InFlight)
		t.Chunk = t.Chunk.Before(left.Rest)
	}
	s.member.handedBack(s.hand.load())
	s.fleet.queue.Put(0, tasks...)
	return err
}

// finishTask handles the result of a task, or of its beginning. Afterwards there is no current
// task if that one has ended.
func (s *session) finishTask(ctx context.Context, done wire.Done) (retired bool, err error) {
	s.fleet.answered.Store(true)
	if e := s.checkSources(done.Sources, true); e != nil {
		t := s.hand.current.Task
		s.hand.current = nil
		return s.of.handleLoss(ctx, &t, e, true)
	}
	s.fleet.notices.warn(s.slot, done.Warnings)
	h := s.hand.find(done.Chunk)
	if h == nil {
		return false, errNotGiven
	}
	held := s.hand.load().size
	if !done.Continues {
		s.hand.remove(h)
	}
	if h.Probe != nil {
		s.fleet.suspects.finishProbe(ctx, s, h.Task, done)
	} else if err := s.deliver(ctx, h, done, held); err != nil {
		return false, err
	}
	if s.of.left {
		s.fleet.reportLeft(s.slot)
	}
	if done.Crowded {
		s.fleet.scaler.Crowded(ctx, s.slot, s.of.mustLeave)
	}
	switch {
	case s.hand.current == nil:
	case done.Continues:
		s.begin()
	default:
		s.prefetch()
	}
	return false, nil
}

// deliver books a finished segment and requeues the rest of the task, unless the worker
// continues with it. held is how many records the worker had.
func (s *session) deliver(ctx context.Context, h *heldTask, done wire.Done, held int64) error {
	again := done.Elsewhere != nil && s.of.makeRoom(ctx, h.exits) // on the same device
	t, records := h.Task, done.Segment.Tally.Records
	if records > 0 {
		s.of.back.useful, s.of.back.vain = true, 0
	}
	ahead := max(0, h.done.Records+h.ahead-records)
	h.done, h.faulty = chunk.Counts{}, 0
	s.fleet.suspects.book(s.member, done, s.hand.load())
	suspended := s.fleet.suspects.suspend(s, h, done)
	h.sample, h.ahead = nil, ahead
	if !done.Continues {
		records = h.Chunk.Records
	}
	rest, finished := s.hand.load(), result{t, s.member, done}
	if s.fleet.ledger.finish(s.member, rest, finished, suspended) {
		s.fleet.tuned.found(s.slot, done.Stats.BatchSize)
	}
	if !suspended {
		s.fleet.release(ctx, false)
		s.fleet.chunkDone(finished, rest.kept, max(0, held-records))
		s.fleet.checkFailures()
	}
	var tasks []queue.Task
	var err error
	if done.Rest != nil && !done.Continues {
		tasks, err = s.fleet.share(s.member, t.Rest(*done.Rest), 0)
	}
	if done.Elsewhere != nil {
		elsewhere := t.Rest(*done.Elsewhere)
		if !again {
			elsewhere.Tried = addDevice(t.Tried, s.slot.Key())
		}
		tasks = append(tasks, elsewhere)
	}
	if done.Continues {
		h.Chunk = *done.Rest
		return nil
	}
	s.member.holds(s.hand.load())
	s.fleet.queue.GiveBack(tasks...)
	return err
}
