package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
	"github.com/gpurun/gpurun/orchestrator/queue"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// member is the state of a slot.
type member struct {
	roster  *roster
	mu      *sync.Mutex // the roster's
	slot    event.Slot
	worker  *process.Worker
	stuck   []proc.Stuck // processes of its workers that cannot be killed
	retired bool         // its worker was lost and is not replaced for now, or it has left
	freed   bool         // it has no slot in the registry
	pace    float64      // the share of time in which it may compute
	memory  wire.FrameworkMemory
	report  event.WorkerReport
	sharing bool // added workers share its device's memory

	bytes       int64         // of the input of its finished segments
	recordBytes float64       // of its current chunk
	batches     int64         // finished
	computed    int64         // records that earlier workers of a concurrent kernel have computed
	repeated    int64         // records of unfinished chunks that were lost with earlier workers
	busy        time.Duration // in which its worker's kernel had work
	busyBefore  time.Duration // the same for earlier workers
	opening     time.Duration // how long its kernel took to open
	tuning      bool          // its worker is searching for its batch size
	awaits      event.Awaits  // what its kernel waits for

	load     load            // what its worker has
	since    time.Time       // when that got its current chunk
	endAsked bool            // it was asked to end the chunk
	ending   bool            // it has handed back the rest of the chunk
	notified *process.Worker // the worker that was notified that the job is nearing its end
}

// started records that the slot has a worker process.
func (m *member) started(w *process.Worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worker = w
	if m.pace < 1 {
		m.sendPace()
	}
	if m.sharing {
		m.sendSharing()
	}
}

// ready records that the slot has an open kernel, which took some time, and its device works.
func (m *member) ready(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.roster.opened.IsZero() {
		m.roster.opened = now
	}
	m.retired, m.report.Retired, m.report.Ready = false, false, now
	m.opening = took
	m.report.Load += took
	m.roster.takeSlot(m)
	for _, device := range m.slot.Devices {
		delete(m.roster.retired, device.String())
	}
}

// exited records that the slot's worker process has ended, or was kept for the next job. What
// it had not finished is computed again.
func (m *member) exited(cpu time.Duration, stuck []proc.Stuck) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repeated += m.load.done
	m.worker, m.load, m.computed = nil, load{}, m.report.Records
	m.busyBefore, m.busy, m.tuning, m.awaits = m.busyBefore+m.busy, 0, false, ""
	m.stuck = append(m.stuck, stuck...)
	m.report.CPU += cpu
	m.report.Rest(time.Now())
}

// heldBy returns the fault of a slot whose worker left a process that cannot be killed, which
// may still be using the device; nil if there is none. Only the slot itself may call it.
func (m *member) heldBy() *fault.Error {
	for _, s := range m.stuck {
		if s.Lives() {
			return fault.GPULost.New("%s; it may still be using the device", s)
		}
	}
	return nil
}

// lost records why the slot's worker was lost.
func (m *member) lost(e *fault.Error, retired bool) {
	r := m.roster
	m.mu.Lock()
	defer m.mu.Unlock()
	r.last = e
	if e.Kind != fault.Device && e.Kind != fault.NoDevice {
		r.unusable = e
	}
	m.report.Lost++
	m.retired, m.report.Retired = retired, retired
	if e.Kind == fault.Device {
		for _, device := range m.slot.Devices {
			r.retired[device.String()] = e
		}
	}
	if retired {
		r.freeSlot(m, e.Kind == fault.Device)
	}
}

// leave removes the slot for good. yields: it still has its slot in the registry.
func (m *member) leave(yields bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if yields {
		m.roster.freeSlot(m, false)
	}
	m.retired, m.freed = true, true
	m.report.Retired = m.report.Retired || m.roster.retired[m.slot.Key()] != nil
}

// retiredBy returns why the slot's device was lost, or nil if it was not.
func (m *member) retiredBy() *fault.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, device := range m.slot.Devices {
		if e := m.roster.retired[device.String()]; e != nil {
			return e
		}
	}
	return nil
}

// needsReset reports whether a device of the slot computes nothing correct before it is reset.
func (m *member) needsReset() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, device := range m.slot.Devices {
		if m.roster.unsound[device.String()] {
			return true
		}
	}
	return false
}

// paused reports whether the slot's device must pause. changed is closed when a pace changes.
func (m *member) paused() (paused bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pace == 0, m.roster.paceChanged
}

// awaitPace waits as long as the slot's device must pause and work remains.
func (m *member) awaitPace(ctx context.Context, done <-chan struct{}) {
	for paused, changed := m.paused(); paused; paused, changed = m.paused() {
		select {
		case <-changed:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendPace sends the worker the share of time in which it may compute.
func (m *member) sendPace() {
	m.worker.Send(wire.Message{Pace: &wire.Pace{Share: m.pace, HandBack: m.roster.handBack}})
}

// sendSharing notifies the worker whether added workers share its memory.
func (m *member) sendSharing() {
	m.worker.Send(wire.Message{Sharing: &wire.Sharing{Added: m.sharing}})
}

// waited records how long the slot waited for a task.
func (m *member) waited(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.WaitedInput += d
}

// begin records that the slot's worker computes a queue.Task, as a part of its load.
func (m *member) begin(t queue.Task, has load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load, m.since, m.endAsked, m.ending = has, time.Now(), false, false
	m.recordBytes = float64(t.Chunk.Length) / float64(max(1, t.Chunk.Records))
}

// holds records what the slot's worker has.
func (m *member) holds(has load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load = has
}

// handedBack records that the slot has handed back what it will not compute.
func (m *member) handedBack(has load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load, m.endAsked, m.ending = has, false, true
}

// finish records the end of a part and what it cost. has is what the worker has besides. The
// caller must hold the lock.
func (m *member) finish(done wire.Done, has load) {
	counts, stats := done.Segment.Tally.Counts, done.Stats
	m.load = has
	m.load.size, m.load.done = 0, 0 // until its next task begins
	m.bytes += int64(float64(counts.Records) * m.recordBytes)
	if stats.Latency != nil {
		m.batches += stats.Latency.Count()
	}
	w := &m.report
	w.Chunks++
	w.Batches += stats.Batches
	w.Busy += stats.Busy
	w.Restarts += stats.Restarts
	w.Retries += stats.Retries
	w.WaitedInput += stats.Input
	w.WaitedOutput += stats.Output
	w.BatchSize = max(w.BatchSize, stats.BatchSize)
	if m.roster.oneByOne { // answers may be imported from the log, and others wait for a commit
		w.Records = m.computed + done.Computed
	} else {
		w.Records += counts.Records
	}
}

// measured records what the slot's worker has and reports about its speed. The caller must hold
// the lock.
func (m *member) measured(has load, p wire.Progress) {
	m.load, m.busy, m.tuning, m.awaits = has, p.Busy, p.Tuning, p.Awaits
	if m.roster.oneByOne {
		m.report.Records = m.computed + p.Computed
	}
	if p.Latency != nil {
		m.batches += p.Latency.Count()
	}
}

// fetches reports whether the slot's kernel waits for files.
func (m *member) fetches() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaits == event.AwaitsFiles
}

// computedRecords returns how many records the slot's workers have computed in this run, also
// those that were lost with a worker.
func (m *member) computedRecords() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.roster.oneByOne { // answers are logged: none is lost
		return m.report.Records
	}
	return m.report.Records + m.load.done + m.repeated
}

// addTo adds the slot to what several have done.
func (m *member) addTo(w *scaler.Work) {
	w.Records += m.report.Records + m.load.done
	w.Bytes += m.bytes + int64(float64(m.load.done)*m.recordBytes)
	w.Batches += m.batches
	w.Busy += m.busyBefore + m.busy
	w.BatchSize = max(w.BatchSize, m.report.BatchSize)
	if m.retired {
		return
	}
	if m.report.Ready.IsZero() {
		w.Loading++
	} else {
		w.Ready++
		w.Load = max(w.Load, m.opening)
	}
	w.Unsteady = w.Unsteady || m.tuning || m.pace < 1
	if m.worker != nil {
		w.PIDs = append(w.PIDs, m.worker.PID)
	}
}

// timeLeft estimates how long the slot needs for the rest of its chunk, not counting the
// batches in flight, which cannot be taken from it.
func (m *member) timeLeft(now time.Time, batch int64) time.Duration {
	window := int64(2)
	if m.notified != nil {
		window = 1
	}
	left := m.load.size - m.load.done - window*batch
	if left <= 0 {
		return 0
	}
	elapsed := now.Sub(m.since)
	if m.load.done == 0 {
		return elapsed // it has not finished a batch in that time
	}
	return time.Duration(float64(elapsed) * float64(left) / float64(m.load.done))
}

// busyTime is how long the slot's kernels have had work, as far as its records are counted.
func (m *member) busyTime() time.Duration {
	if m.roster.oneByOne { // records count at once, the report's time with the chunk's end
		return m.busyBefore + m.busy
	}
	return m.report.Busy
}
