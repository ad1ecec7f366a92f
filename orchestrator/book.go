package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Bookkeeping that slots report to the job from their goroutines.

func (j *job) setWorker(slot Slot, w *workerProcess) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.slots[slot.Number].worker = w
	if w != nil {
		if pace := j.slots[slot.Number].pace; pace < 1 {
			w.setPace(pace, j.config.handBack)
		}
		return
	}
	j.ledger.withdraw(slot.Number)
	j.slots[slot.Number].done, j.slots[slot.Number].size = 0, 0
	report := &j.slots[slot.Number].report
	if !report.ready.IsZero() {
		report.alive += time.Since(report.ready)
		report.ready = time.Time{}
	}
}

// ready records that the slot has an open kernel and its device works.
func (j *job) ready(slot Slot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.opened = true
	j.slots[slot.Number].retired = false
	j.takeSlot(slot)
	j.ledger.excuse(slot.Number, false)
	report := &j.slots[slot.Number].report
	report.ready, report.Retired = time.Now(), false
	for _, device := range slot.Devices {
		delete(j.retired, device.String())
	}
}

// retiredBy returns why the slot's device was lost, or nil if it was not.
func (j *job) retiredBy(slot Slot) *fault.Error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, device := range slot.Devices {
		if e := j.retired[device.String()]; e != nil {
			return e
		}
	}
	return nil
}

// lost records a lost worker. again is how long until a retired one is retried.
func (j *job) lost(slot Slot, e *fault.Error, retired bool, again time.Duration) {
	j.mu.Lock()
	j.last = e
	if e.Kind != fault.Device && e.Kind != fault.NoDevice {
		j.unusable = e
	}
	report := &j.slots[slot.Number].report
	report.Lost++
	report.Retired = retired
	j.slots[slot.Number].retired = retired
	j.ledger.excuse(slot.Number, retired)
	if e.Kind == fault.Device {
		for _, device := range slot.Devices {
			j.retired[device.String()] = e
		}
	}
	if retired {
		j.freeSlot(slot, e.Kind == fault.Device)
	}
	j.mu.Unlock()
	event := WorkerLost{Slot: slot.Number, Device: slot.Name, Fault: e, Retired: retired}
	if retired && !j.queue.alone() {
		event.RetryAfter = again
	}
	j.emit(event)
}

// freeSlot returns a retired worker's slot to the registry; a failed device loses all
// its slots. The caller must hold j.mu.
func (j *job) freeSlot(slot Slot, failed bool) {
	if failed {
		j.registry.Fail(slot.key())
		for i, other := range j.plan.Slots {
			if other.key() == slot.key() {
				j.slots[i].freed = true
			}
		}
		return
	}
	if s := &j.slots[slot.Number]; !s.freed {
		s.freed = true
		_ = j.registry.Release(slot.key())
	}
}

// takeSlot reacquires the slot of a worker that came back: opening its kernel was the
// probe that its device passed. The caller must hold j.mu.
func (j *job) takeSlot(slot Slot) {
	s := &j.slots[slot.Number]
	if !s.freed {
		return
	}
	if j.registry.Recover(slot.key(), func(gpu.Device) error { return nil }) == nil {
		_, err := j.registry.Acquire(slot.key())
		s.freed = err != nil
	}
}

// leave removes the slot from the job. Its registry slot has already been released.
func (j *job) leave(slot Slot) {
	j.mu.Lock()
	s := &j.slots[slot.Number]
	s.retired, s.freed = true, true
	j.ledger.excuse(slot.Number, true)
	j.mu.Unlock()
	j.emit(WorkerLeft{Slot: slot.Number, Device: slot.Name})
}

// assigned records that the slot is working on a chunk.
func (j *job) assigned(slot Slot, t task) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &j.slots[slot.Number]
	s.done, s.size, s.since, s.endAsked, s.ending = 0, t.chunk.Records, time.Now(), false, false
}

// progress records how far a chunk has come.
func (j *job) progress(slot Slot, t task, p wire.Progress) {
	j.mu.Lock()
	j.slots[slot.Number].done = p.Counts.Records
	j.mu.Unlock()
	j.ledger.progress(slot.Number, p)
	j.emit(Progress{
		Slot: slot.Number, Device: slot.Name, Chunk: p.Counts, Records: t.chunk.Records,
		Job: j.ledger.done(), Total: j.ledger.total(), Latency: p.Latency,
	})
	j.checkHalt()
}

// commit takes a finished segment and requeues the rest of the chunk. again: a record
// that did not fit may be retried on the same device.
func (j *job) commit(ctx context.Context, slot Slot, t task, done wire.Done, again bool) error {
	counts := done.Segment.Tally.Counts
	j.mu.Lock()
	s := &j.slots[slot.Number]
	s.done, s.size = 0, 0
	s.report.add(counts, done.Stats)
	j.mu.Unlock()
	j.ledger.finish(slot.Number, t, done)
	j.releaseHeld(ctx, false)
	j.emit(ChunkDone{
		Slot: slot.Number, Device: slot.Name, First: t.chunk.First, Counts: done.Segment.Tally,
		Job: j.ledger.done(), Total: j.ledger.total(), Stats: newSegmentStats(done.Stats),
	})
	j.checkHalt()
	var tasks []task
	var err error
	if done.Rest != nil {
		tasks, err = j.share(slot, task{chunk: *done.Rest, attempts: t.attempts, tried: t.tried}, 0)
	}
	if done.Elsewhere != nil {
		tried := t.tried
		if !again {
			tried = addDevice(t.tried, slot.key())
		}
		tasks = append(tasks, task{chunk: *done.Elsewhere, attempts: t.attempts, tried: tried})
	}
	finished := t.chunk
	finished.Records = counts.Records
	j.source.Release(finished)
	j.queue.giveBack(tasks...)
	return err
}

// handedBack requeues the part of a task that the worker will not reach, while the
// worker finishes the rest.
func (j *job) handedBack(slot Slot, t *task, left wire.Remainder) error {
	tasks, err := j.share(slot, task{chunk: left.Rest, attempts: t.attempts, tried: t.tried}, left.InFlight)
	t.chunk = t.chunk.Before(left.Rest)
	j.mu.Lock()
	s := &j.slots[slot.Number]
	s.size, s.endAsked, s.ending = t.chunk.Records, false, true
	j.mu.Unlock()
	j.queue.add(tasks...)
	return err
}

// releaseHeld passes the segments that may be committed to the committer, which may have
// exited if the job is stopping.
func (j *job) releaseHeld(ctx context.Context, end bool) {
	held, why := j.ledger.release(end, j.stopping.Load())
	if why != nil {
		j.halt(why)
		return
	}
	for _, s := range held {
		select {
		case j.segments <- s:
			continue
		default:
		}
		select {
		case j.segments <- s:
		case <-ctx.Done():
		}
	}
}

// retry requeues a task whose worker was lost, or gives it up. blameless: no record can
// have been the cause.
func (j *job) retry(ctx context.Context, slot Slot, t task, e *fault.Error, blameless bool) error {
	if !blameless {
		t.attempts++
	}
	t.tried = addDevice(t.tried, slot.key())
	if t.attempts <= max(0, j.config.Retries) {
		j.queue.giveBack(t)
		return nil
	}
	why := fault.New(e.Kind, "given up after %d attempts: %s", t.attempts, e.Message).WithDetail(e.Detail)
	segment, err := j.giveUp(t, why)
	if err != nil {
		j.queue.giveBack(t)
		return err
	}
	j.ledger.hold(segment)
	j.releaseHeld(ctx, false)
	j.source.Release(t.chunk)
	j.queue.finish()
	return nil
}

func addDevice(list []string, device string) []string {
	if slices.Contains(list, device) {
		return list
	}
	return append(slices.Clone(list), device)
}

func (j *job) workerReports() (list []WorkerReport) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.slots {
		list = append(list, j.slots[i].report)
	}
	return list
}
