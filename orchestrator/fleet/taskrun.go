package fleet

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// runTask follows the worker's current task to its end, and those that the worker has ahead of
// it.
func (s *slotRun) runTask(ctx context.Context, current *heldTask) (retired bool, err error) {
	s.hand.current = current
	defer func() { s.hand.current = nil }()
	s.begin()
	first := current.chunk.First
	s.repeatStop()
	s.checkpoint = s.newCheckpoint()
	defer func() { s.checkpoint.stop() }()
	defer s.watchFirst()()
	defer s.fleet.leader.begin(first)()
	s.prefetch(ctx)
	for {
		message, err := s.worker.Receive(ctx, s.asking())
		switch {
		case ctx.Err() != nil:
			s.fleet.queue.giveBack(current.task)
			return true, nil
		case err != nil:
			return s.handleLoss(ctx, &current.task, s.worker.Lost(err), false)
		case message.Layout != nil:
			if e := s.fleet.answerLayout(ctx, s.worker, first, *message.Layout); e != nil {
				return s.handleLoss(ctx, &current.task, e, true)
			}
		case message.Remainder != nil:
			if err := s.handBack(*message.Remainder); err != nil {
				return false, err
			}
		case message.Done != nil:
			if message.Done.Chunk == current.id {
				s.checkpoint.stop() // or it would end the next part
			}
			retired, err := s.finishTask(ctx, *message.Done)
			if s.hand.current == nil || err != nil {
				return retired, err
			}
			if message.Done.Continues {
				s.checkpoint = s.newCheckpoint()
			}
		case message.Failed != nil:
			return s.handleLoss(ctx, &current.task, cmp.Or(s.checkSources(message.Failed.Sources, false), message.Failed.Fault), true)
		default:
			s.note(ctx, message)
		}
	}
}

// repeatStop repeats a stop or a pause that the worker may have received before its current
// task.
func (s *slotRun) repeatStop() {
	switch {
	case !s.fleet.state.running():
		s.worker.Send(wire.Message{Stop: &wire.Stop{Job: true, Drain: s.fleet.DrainTimeout}})
	case s.idles():
		s.worker.EndChunk()
	}
}

// note handles a message that neither ends a task nor needs an answer.
func (s *slotRun) note(ctx context.Context, message wire.Message) {
	switch {
	case message == (wire.Message{}): // the worker could take another task
		s.prefetch(ctx)
	case message.Progress != nil:
		if message.Progress.Counts.Records+message.Progress.Ahead > 0 {
			s.fleet.stall.answered.Store(true)
		}
		if message.Progress.Chunk == s.hand.current.id && message.Progress.Counts.Records > 0 {
			s.checkpoint.batchDone()
		}
		s.progress(*message.Progress)
		s.fleet.monitor.noteMemory(s.slot, message.Progress.Memory)
		s.noteFirst(ctx, message.Progress.First)
	case message.Search != nil:
		s.fleet.stall.answered.Store(true)
		s.noteSearch(ctx, *message.Search)
	case message.Suspect != nil:
		s.fleet.stall.answered.Store(true)
		s.noteSuspect(*message.Suspect)
	case message.Holding != nil:
		s.noteHolding(*message.Holding)
	case message.Warned != nil:
		s.fleet.warn(s.slot, message.Warned.Warnings)
	case message.ReadComplete != nil:
		if h := s.hand.find(message.ReadComplete.Chunk); h != nil {
			h.read = true
		}
		s.prefetch(ctx)
	case message.ReturnPrefetched != nil:
		s.giveBackAhead(false)
	case message.Spent != nil:
		s.fleet.Overspent(message.Spent.Blind)
	}
}

// finishTask takes the result of a task, or of its beginning. Afterwards there is no current
// task if that one has ended.
func (s *slotRun) finishTask(ctx context.Context, done wire.Done) (retired bool, err error) {
	s.fleet.stall.answered.Store(true)
	if e := s.checkSources(done.Sources, true); e != nil {
		t := s.hand.current.task
		s.hand.current = nil
		return s.handleLoss(ctx, &t, e, true)
	}
	s.fleet.warn(s.slot, done.Warnings)
	s.noteFirst(ctx, done.First)
	h := s.hand.find(done.Chunk)
	again := h != nil && done.Elsewhere != nil && s.makeRoom(ctx, h.exits)
	if err := s.deliver(ctx, done, again); err != nil {
		return false, err
	}
	if s.left {
		s.reportLeft()
	}
	if done.Crowded {
		s.fleet.scaler.Crowded(ctx, s.slot, s.mustLeave)
	}
	switch {
	case s.hand.current == nil:
	case done.Continues:
		s.begin()
	default:
		s.prefetch(ctx)
	}
	return false, nil
}

// begin records that the worker computes its current task.
func (s *slotRun) begin() {
	t := s.hand.current.task
	s.fleet.roster.assigned(s.slot, t)
	s.noteLoad()
	if t.probe != nil {
		return
	}
	s.fleet.Emit(event.ChunkStarted{Slot: s.slot.Number, Device: s.slot.Name, First: t.chunk.First, Records: t.chunk.Records})
}

// newCheckpoint ends the part of the current task when a checkpoint is due.
func (s *slotRun) newCheckpoint() *checkpoint {
	worker, first := s.worker, s.hand.current.chunk.First
	return newCheckpoint(s.fleet.Checkpoint, func() { worker.Send(wire.Message{Stop: &wire.Stop{Only: &first}}) })
}

// idles reports whether the worker should not get more work for now.
func (s *slotRun) idles() bool {
	paused, _ := s.fleet.roster.paused(s.slot)
	return paused || s.mustLeave() || s.threads.Load() > 0 || !s.fleet.state.running() || s.fleet.Paused() != nil
}

// checkSources checks the files that the worker reports. If they differ from the job's,
// the job stops and the worker's results are discarded; the returned fault is why the
// worker is lost.
func (s *slotRun) checkSources(list []wire.Source, results bool) *fault.Error {
	s.loaded = append(s.loaded, list...)
	e := s.fleet.Sources(list, results)
	if e == nil || e.Kind != fault.Stopped {
		return e
	}
	s.fleet.Drain(e, s.fleet.DrainTimeout)
	return fault.Interrupted.New("%s", e.Message)
}

// partPath returns a path for a part that contains its first record's number and is
// unique, so that no two attempts, including those of earlier runs, write to the same
// file.
func (f *Fleet) partPath(t task) string {
	return filepath.Join(f.Parts, fmt.Sprintf("%012d-%08x", t.chunk.First, rand.Uint32()))
}
