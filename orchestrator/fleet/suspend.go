package fleet

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// noteSuspect handles a record that failed on the slot's device.
func (s *slotRun) noteSuspect(suspect wire.Suspect) {
	h := s.hand.find(suspect.Chunk)
	if h == nil || h.probe != nil {
		return
	}
	h.sample, h.faulty = &suspect, max(h.faulty, suspect.Failed)
	s.fleet.suspects.progress(s.slot, s.hand.load().outcomes)
	s.check(h)
	if s.fleet.Halt != nil && s.checkable(h.task) {
		s.worker.EndChunk() // suspected failures count when their segment is committed
	}
}

// checkable reports whether another device may find that the slot's device, and not the
// records, are to blame for a task's failures.
func (s *slotRun) checkable(t task) bool {
	key := s.slot.Key()
	return s.slot.Devices[0].Kind == gpu.GPU && t.probe == nil && len(s.fleet.queue.untried(addDevice(t.tried, key))) > 0
}

// check has another device compute a record of the task that failed here, if this device is
// suspicious.
func (s *slotRun) check(h *heldTask) {
	key := s.slot.Key()
	if h.sample == nil || !s.checkable(h.task) || !s.fleet.suspects.begin(key, s.fleet.queue.untried([]string{key})) {
		return
	}
	s.fleet.test(task{
		chunk: h.sample.Record, tried: addDevice(h.tried, key), blame: h.blame,
		probe: &probe{device: key, fault: h.sample.Fault},
	})
}

// test queues a probe and, if no device is idle that may take it, makes one end its chunk.
func (f *Fleet) test(t task) {
	if f.queue.addProbe(t) || f.Lane.Open > 1 {
		return
	}
	others := f.queue.untried(t.tried)
	best := f.suspects.best(others)
	for _, w := range f.roster.workersWhere(func(m *member) bool {
		return m.size > 0 && slices.Contains(others, m.slot.Key()) && (best == "" || m.slot.Key() == best)
	}) {
		w.EndChunk()
		if best != "" {
			return
		}
	}
}

// suspend keeps the segment of a task from being committed if its device is suspicious, and
// reports whether it did.
func (s *slotRun) suspend(h *heldTask, done wire.Done) bool {
	if done.Stats.Faulty == 0 || h.sample == nil {
		return false
	}
	key, t := s.slot.Key(), h.task
	t.chunk = t.chunk.Head(done.Segment.Next, done.Segment.End())
	held := result{task: t, slot: s.slot, done: done}
	if s.fleet.suspects.isSick(key) {
		s.fleet.queue.suspend(key, false)
		s.fleet.recompute(held)
		return true
	}
	if !s.checkable(t) {
		return false
	}
	s.check(h)
	kept, full := s.fleet.suspects.suspend(key, held)
	if kept {
		s.fleet.queue.suspend(key, full)
	}
	return kept
}

// finishProbe handles the result of a probe.
func (s *slotRun) finishProbe(ctx context.Context, h *heldTask, done wire.Done) {
	t, counts := h.task, done.Segment.Tally.Counts
	s.fleet.discard(done.Segment)
	s.hand.remove(h)
	s.noteLoad()
	s.fleet.suspects.book(s.slot, outcomesOf(counts, done.Stats.Faulty), s.hand.load().outcomes)
	switch {
	case counts.Records > 0:
		s.fleet.rule(ctx, s.slot, t, counts.Failed > 0)
		s.fleet.queue.giveBack()
	case done.Elsewhere != nil:
		s.fleet.rule(ctx, s.slot, t, true)
		s.fleet.queue.giveBack()
	default: // it was interrupted
		s.fleet.queue.giveBack(t)
	}
}

// rule carries out what the result of a probe means.
func (f *Fleet) rule(ctx context.Context, on event.Slot, t task, failed bool) {
	device := t.probe.device
	t.tried = addDevice(t.tried, on.Key())
	decision, held := f.suspects.rule(device, on.Key(), failed, f.queue.untried([]string{device}), len(f.queue.untried(t.tried)) == 0)
	if decision == rulingOpen {
		f.test(t)
		return
	}
	f.queue.unlimit(device)
	if decision == recordsFail {
		for _, s := range held {
			f.ledger.book(s.task, s.done)
			f.chunkDone(s, 0, 0)
			f.queue.giveBack()
		}
		f.release(ctx, false)
		f.checkFailures()
		return
	}
	if decision == deviceSick {
		f.retire(device, on, t.probe.fault)
	}
	for _, s := range held {
		f.recompute(s)
	}
}

// chunkDone reports a segment that is booked, and releases its input. ahead and held are what
// its slot has besides, as in [event.ChunkDone].
func (f *Fleet) chunkDone(s result, ahead, held int64) {
	f.Emit(event.ChunkDone{
		Slot: s.slot.Number, Device: s.slot.Name, First: s.task.chunk.First, Counts: s.done.Segment.Tally,
		Job: f.ledger.done(), Answers: f.ledger.answered(), Ahead: ahead, Held: held, Computed: f.roster.computed(s.slot),
		Total: f.ledger.total(), Estimate: f.ledger.estimate(), Stats: event.NewSegmentStats(s.done.Stats), Usage: f.Usage(),
	})
	finished := s.task.chunk
	finished.Records = s.done.Segment.Tally.Records
	f.Source.Release(finished)
}

// recompute discards a segment and lets other devices compute its records.
func (f *Fleet) recompute(s result) {
	f.discard(s.done.Segment)
	s.task.tried = addDevice(s.task.tried, s.slot.Key())
	f.queue.giveBack(s.task)
}

// discard removes the files of a segment that is not committed.
func (f *Fleet) discard(s chunk.Segment) {
	if s.Part != "" {
		commit.RemovePart(filepath.Join(f.Parts, s.Part))
	}
}

// retire retires a device on which records fail that succeed on another one, for the rest of
// the job.
func (f *Fleet) retire(key string, on event.Slot, e *fault.Error) {
	why := fault.OddGPU.New("records fail on %s that succeed on %s: %s", key, on.Key(), e.Message).WithDetail(e.Detail)
	sick := event.SickDevice{Device: key, Records: f.suspects.failures(key), Message: e.Message}
	f.queue.expel(key)
	for _, device := range f.roster.devicesOf(key) {
		if device.String() == key {
			sick.UUID = device.UUID
		}
		f.roster.retire(device, why)
	}
	f.ledger.noteSick(sick)
	f.Emit(event.DeviceRetired{SickDevice: sick, On: on.Key(), Detail: e.Detail})
}
