package fleet

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

// A record that fails on one GPU and succeeds on another is not to blame, the GPU is. While a
// GPU is suspicious, as package judge decides, its segments with failed records are suspended
// instead of committed, and another device computes one of those records, a probe. If it fails
// there, too, the segments are committed. If it succeeds, other devices compute them again,
// and a sick GPU is retired for the job.
//
// The CPU devices of a host are one machine: none of them is ever suspicious. Neither is the
// last device of a job.

// maxSuspended limits the suspended segments of a device. It then gets no work but probes.
const maxSuspended = 4

// suspects is the evidence about the job's devices, by key.
type suspects struct {
	fleet   *Fleet
	mu      *sync.Mutex // the roster's
	devices map[string]*suspect
}

// suspect is the evidence about one device.
type suspect struct {
	booked  judge.Outcomes // of finished parts
	proven  int64          // failures that the records caused
	probing bool           // another device computes one of its records
	held    []result
	sick    bool
}

// result is a finished segment of a slot.
type result struct {
	task   queue.Task // its chunk is what the segment was computed from
	member *member
	done   wire.Done
}

// ruling is what the result of a probe means.
type ruling int

const (
	rulingOpen     ruling = iota // a further device must compute the record
	recordsFail                  // the suspended segments are committed
	recordsSucceed               // other devices compute them again
	deviceSick                   // and the device is retired
)

// of returns the evidence about a device. The caller must hold x.mu.
func (x *suspects) of(device string) *suspect {
	if x.devices[device] == nil {
		x.devices[device] = &suspect{}
	}
	return x.devices[device]
}

// outcomes sums up what became of a device's records. The caller must hold x.mu.
func (x *suspects) outcomes(device string) judge.Outcomes {
	d := x.of(device)
	all := d.booked
	for _, m := range x.fleet.roster.members {
		if m.slot.Key() == device {
			all = all.Plus(m.load.outcomes)
		}
	}
	all.Failed = max(0, all.Failed-d.proven)
	return all
}

func (x *suspects) outcomesOf(devices []string) []judge.Outcomes {
	list := make([]judge.Outcomes, len(devices))
	for i, device := range devices {
		list[i] = x.outcomes(device)
	}
	return list
}

// book adds the outcomes of a finished part; has is what the slot's worker has besides.
func (x *suspects) book(m *member, done wire.Done, has load) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(m.slot.Key())
	d.booked = d.booked.Plus(outcomesOf(done.Segment.Tally.Counts, done.Stats.Faulty))
	m.load.outcomes = has.outcomes
}

// begin reports whether one of the others must compute a record of a device, and notes that
// it does.
func (x *suspects) begin(device string, others []string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(device)
	if d.probing || d.sick || !x.outcomes(device).Suspicious(x.outcomesOf(others)) {
		return false
	}
	d.probing = true
	return true
}

// keep keeps a segment if a probe will decide on its device. full: the device has as many
// as it may have.
func (x *suspects) keep(device string, s result) (kept, full bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(device)
	if !d.probing {
		return false, false
	}
	d.held = append(d.held, s)
	return true, len(d.held) >= maxSuspended
}

// decide decides what the result of a probe means, which was computed on a device. others are
// all devices but the suspicious one. last: no further device can try the record. It returns
// the segments that were suspended, and how many records failed.
func (x *suspects) decide(device, on string, failed bool, others []string, last bool) (_ ruling, held []result, failures int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d, own, rest := x.of(device), x.outcomes(device), x.outcomesOf(others)
	switch {
	case d.sick: // it was retired meanwhile
		return recordsSucceed, nil, 0
	case failed && !last && !x.outcomes(on).Trusted(rest):
		return rulingOpen, nil, 0
	}
	held, d.held, d.probing = d.held, nil, false
	switch {
	case failed:
		d.proven += own.Failed
		return recordsFail, held, 0
	case own.Sick(rest):
		d.sick = true
		return deviceSick, held, own.Failed
	}
	return recordsSucceed, held, 0
}

// removeAll removes the suspended segments of all devices and returns them.
func (x *suspects) removeAll() (all []result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.devices {
		all, d.held = append(all, d.held...), nil
	}
	return all
}

// isSick reports whether a device was retired because records failed on it that succeed
// elsewhere.
func (x *suspects) isSick(device string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of(device).sick
}

// outcomesOf returns what the kernel has made of counted records, of which faulty failed in it.
func outcomesOf(counts chunk.Counts, faulty int64) judge.Outcomes {
	return judge.Outcomes{Good: counts.Succeeded + counts.Dropped, Failed: faulty}
}

// doubt handles a record that failed on the device of a session's slot.
func (x *suspects) doubt(s *session, suspect wire.Suspect) {
	h := s.hand.find(suspect.Chunk)
	if h == nil || h.Probe != nil {
		return
	}
	h.sample, h.faulty = &suspect, max(h.faulty, suspect.Failed)
	s.member.holds(s.hand.load())
	x.check(s, h)
	if x.fleet.Halt != nil && x.checkable(s, h.Task) {
		s.worker.EndChunk() // suspected failures count when their segment is committed
	}
}

// checkable reports whether another device may find that the slot's device, and not the
// records, are to blame for a task's failures.
func (x *suspects) checkable(s *session, t queue.Task) bool {
	return s.slot.Devices[0].Kind == gpu.GPU && t.Probe == nil && len(x.fleet.queue.Untried(addDevice(t.Tried, s.slot.Key()))) > 0
}

// check has another device compute a record of the task that failed here, if this device is
// suspicious.
func (x *suspects) check(s *session, h *heldTask) {
	key := s.slot.Key()
	if h.sample == nil || !x.checkable(s, h.Task) || !x.begin(key, x.fleet.queue.Untried([]string{key})) {
		return
	}
	x.test(queue.Task{
		Chunk: h.sample.Record, Tried: addDevice(h.Tried, key), Blame: h.Blame,
		Probe: &queue.Probe{Device: key, Fault: h.sample.Fault},
	})
}

// suspend keeps the segment of a task from being committed if its device is suspicious, and
// reports whether it did.
func (x *suspects) suspend(s *session, h *heldTask, done wire.Done) bool {
	if done.Stats.Faulty == 0 || h.sample == nil {
		return false
	}
	key, held := s.slot.Key(), result{task: h.Task, member: s.member, done: done}
	held.task.Chunk = h.Chunk.Head(done.Segment.Next, done.Segment.End())
	if x.isSick(key) {
		x.fleet.queue.Suspend(key, false)
		x.recompute(held)
		return true
	}
	if !x.checkable(s, h.Task) {
		return false
	}
	x.check(s, h)
	kept, full := x.keep(key, held)
	if kept {
		x.fleet.queue.Suspend(key, full)
	}
	return kept
}

// finishProbe handles the result of a probe.
func (x *suspects) finishProbe(ctx context.Context, s *session, t queue.Task, done wire.Done) {
	counts := done.Segment.Tally.Counts
	x.discard(done.Segment)
	s.member.holds(s.hand.load())
	x.book(s.member, done, s.hand.load())
	if counts.Records == 0 && done.Elsewhere == nil { // it was interrupted
		x.fleet.queue.GiveBack(t)
		return
	}
	x.rule(ctx, s.slot.Key(), t, counts.Failed > 0 || done.Elsewhere != nil)
	x.fleet.queue.GiveBack()
}

// test queues a probe and, if no device is idle that may take it, makes one end its chunk.
func (x *suspects) test(t queue.Task) {
	f := x.fleet
	if f.queue.AddProbe(t) || f.Lane.Open > 1 {
		return
	}
	others := f.queue.Untried(t.Tried)
	if may := f.roster.workers(func(m *member) bool { return computing(m) && slices.Contains(others, m.slot.Key()) }); len(may) > 0 {
		may[0].EndChunk()
	}
}

// rule carries out what the result of a probe means.
func (x *suspects) rule(ctx context.Context, on string, t queue.Task, failed bool) {
	f, device := x.fleet, t.Probe.Device
	t.Tried = addDevice(t.Tried, on)
	decision, held, failures := x.decide(device, on, failed, f.queue.Untried([]string{device}), len(f.queue.Untried(t.Tried)) == 0)
	if decision == rulingOpen {
		x.test(t)
		return
	}
	f.queue.Unlimit(device)
	if decision == recordsFail {
		for _, s := range held {
			f.ledger.book(s)
			f.chunkDone(s, 0, 0)
			f.queue.GiveBack()
		}
		f.release(ctx, false)
		f.checkFailures()
		return
	}
	if decision == deviceSick {
		x.retire(device, on, t.Probe.Fault, failures)
	}
	for _, s := range held {
		x.recompute(s)
	}
}

// recompute discards a segment and lets other devices compute its records.
func (x *suspects) recompute(s result) {
	x.discard(s.done.Segment)
	s.task.Tried = addDevice(s.task.Tried, s.member.slot.Key())
	x.fleet.queue.GiveBack(s.task)
}

// discard removes the files of a segment that is not committed.
func (x *suspects) discard(s chunk.Segment) {
	if s.Part != "" {
		commit.RemovePart(filepath.Join(x.fleet.Parts, s.Part))
	}
}

// retire retires a device on which records fail that succeed on another one, for the rest of
// the job.
func (x *suspects) retire(key, on string, e *fault.Error, failures int64) {
	f := x.fleet
	why := fault.OddGPU.New("records fail on %s that succeed on %s: %s", key, on, e.Message).WithDetail(e.Detail)
	sick := event.SickDevice{Device: key, Records: failures, Message: e.Message}
	f.queue.Expel(key)
	i := slices.IndexFunc(f.Slots, func(s event.Slot) bool { return s.Key() == key })
	sick.UUID = f.Slots[i].Devices[0].UUID
	for _, device := range f.Slots[i].Devices {
		f.roster.retire(device, why)
	}
	f.ledger.addSick(sick)
	f.Emit(event.DeviceRetired{SickDevice: sick, On: on, Detail: e.Detail})
}
