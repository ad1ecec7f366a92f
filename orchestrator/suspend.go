package orchestrator

import (
	"context"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// noteSuspect handles a record that failed on the slot's device.
func (s *slotRun) noteSuspect(suspect wire.Suspect) {
	h := s.find(suspect.Chunk)
	if h == nil || h.probe != nil {
		return
	}
	h.sample, h.faulty = &suspect, max(h.faulty, suspect.Failed)
	s.job.suspects.progress(s.slot, s.outcomes())
	s.check(h)
	if s.job.config.Failures.Halt != (Halt{}) && s.checkable(h.task) {
		s.worker.endChunk() // suspected failures count when their segment is committed
	}
}

// checkable reports whether another device may find that the slot's device, and not the
// records, are to blame for a task's failures.
func (s *slotRun) checkable(t task) bool {
	key := s.slot.key()
	return s.slot.Devices[0].Kind == gpu.GPU && t.probe == nil && !s.job.queue.final(t, key)
}

// check has another device compute a record of the task that failed here, if this device is
// suspicious.
func (s *slotRun) check(h *heldTask) {
	key := s.slot.key()
	if h.sample == nil || !s.checkable(h.task) || !s.job.suspects.begin(key, s.job.queue.others(key)) {
		return
	}
	s.job.test(task{
		chunk: h.sample.Record, tried: addDevice(h.tried, key), blame: h.blame,
		probe: &probe{device: key, fault: h.sample.Fault},
	})
}

// test queues a probe and, if no device is idle that may take it, makes one end its chunk.
func (j *job) test(t task) {
	if j.queue.addProbe(t) || j.plan.Info.Concurrency > 0 {
		return
	}
	others := j.queue.untried(t)
	best := j.suspects.best(others)
	for _, w := range j.fleet.workersWhere(func(m *member) bool {
		return m.size > 0 && slices.Contains(others, m.slot.key()) && (best == "" || m.slot.key() == best)
	}) {
		w.endChunk()
		if best != "" {
			return
		}
	}
}

// outcomes sums up what became of the records of all parts in progress.
func (s *slotRun) outcomes() (all judge.Outcomes) {
	for _, h := range s.held() {
		all = all.Plus(outcomesOf(h.done, h.faulty))
	}
	return all
}

// suspend keeps the segment of a task from being committed if its device is suspicious, and
// reports whether it did.
func (s *slotRun) suspend(h *heldTask, done wire.Done) bool {
	if done.Stats.Faulty == 0 || h.sample == nil {
		return false
	}
	key, t := s.slot.key(), h.task
	t.chunk = t.chunk.Head(done.Segment.Next, done.Segment.End())
	held := suspended{task: t, slot: s.slot, done: done}
	if s.job.suspects.isSick(key) {
		s.job.queue.suspend(key, false)
		s.job.recompute(held)
		return true
	}
	if !s.checkable(t) {
		return false
	}
	s.check(h)
	kept, full := s.job.suspects.suspend(key, held)
	if kept {
		s.job.queue.suspend(key, full)
	}
	return kept
}

// finishProbe handles the result of a probe.
func (s *slotRun) finishProbe(ctx context.Context, h *heldTask, done wire.Done) {
	t, counts := h.task, done.Segment.Tally.Counts
	s.job.discard(done.Segment)
	s.remove(h)
	s.noteLoad()
	s.job.suspects.book(s.slot, outcomesOf(counts, done.Stats.Faulty), s.outcomes())
	switch {
	case counts.Records > 0:
		s.job.rule(ctx, s.slot, t, counts.Failed > 0)
		s.job.queue.finish()
	case done.Elsewhere != nil:
		s.job.rule(ctx, s.slot, t, true)
		s.job.queue.finish()
	default: // it was interrupted
		s.job.queue.giveBack(t)
	}
}

// rule carries out what the result of a probe means.
func (j *job) rule(ctx context.Context, on Slot, t task, failed bool) {
	device := t.probe.device
	t.tried = addDevice(t.tried, on.key())
	decision, held := j.suspects.rule(device, on.key(), failed, j.queue.others(device), len(j.queue.untried(t)) == 0)
	if decision == rulingOpen {
		j.test(t)
		return
	}
	j.queue.unlimit(device)
	if decision == recordsFail {
		for _, s := range held {
			j.commitSuspended(s)
		}
		j.releaseHeld(ctx)
		j.checkFailures()
		return
	}
	if decision == deviceSick {
		j.retire(device, on, t.probe.fault)
	}
	for _, s := range held {
		j.recompute(s)
	}
}

// commitSuspended commits a segment as it is.
func (j *job) commitSuspended(s suspended) {
	j.ledger.book(s.task, s.done)
	j.emit(ChunkDone{
		Slot: s.slot.Number, Device: s.slot.Name, First: s.done.Segment.First, Counts: s.done.Segment.Tally,
		Job: j.ledger.done(), Answers: j.ledger.answered(), Computed: j.fleet.computed(s.slot),
		Total: j.ledger.total(), Estimate: j.ledger.estimate(), Stats: newSegmentStats(s.done.Stats), Usage: j.figures.All(),
	})
	j.source.Release(s.task.chunk)
	j.queue.finish()
}

// recompute discards a segment and lets other devices compute its records.
func (j *job) recompute(s suspended) {
	j.discard(s.done.Segment)
	s.task.tried = addDevice(s.task.tried, s.slot.key())
	j.queue.giveBack(s.task)
}

// discard removes the files of a segment that is not committed.
func (j *job) discard(s chunk.Segment) {
	if s.Part != "" {
		commit.RemovePart(j.folder.join(commit.PartsDir, s.Part))
	}
}

// retire retires a device on which records fail that succeed on another one, for the rest of
// the job.
func (j *job) retire(key string, on Slot, e *fault.Error) {
	why := fault.New(fault.Device, "records fail on %s that succeed on %s: %s", key, on.key(), e.Message).WithDetail(e.Detail)
	sick := SickDevice{Device: key, Records: j.suspects.failures(key), Message: e.Message}
	j.queue.expel(key)
	for _, device := range j.fleet.devicesOf(key) {
		if device.String() == key {
			sick.UUID = device.UUID
		}
		j.fleet.retire(device, why)
	}
	j.ledger.noteSick(sick)
	j.emit(DeviceRetired{SickDevice: sick, On: on.key(), Detail: e.Detail})
}
