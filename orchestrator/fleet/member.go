package fleet

import (
	"slices"
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
	sharing bool // added workers share its device's memory
	account account

	load     load      // what its worker has
	since    time.Time // when that got its current chunk
	endAsked bool      // it was asked to end the chunk
	ending   bool      // it has handed back the rest of the chunk
	notified bool      // it was notified that the job is nearing its end
}

// started records that the slot has a worker process.
func (m *member) started(w *process.Worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worker, m.notified = w, false
	if m.pace < 1 {
		m.sendPace()
	}
	if m.sharing {
		m.sendSharing()
	}
}

// starts records how far the start of the slot's kernel is.
func (m *member) starts(s wire.Start) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account.starts(s)
}

// ready records that the slot has an open kernel, which took some time, and its device works.
func (m *member) ready(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.roster.opened.IsZero() {
		m.roster.opened = now
	}
	m.retired = false
	m.account.ready(now, took)
	m.roster.regainSlot(m)
	for _, device := range m.slot.Devices {
		delete(m.roster.retired, device.String())
	}
}

// exited records that the slot's worker process has ended, or was kept for the next job. What
// it had not finished is computed again.
func (m *member) exited(cpu time.Duration, stuck []proc.Stuck) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account.exited(m.load.done, cpu)
	m.worker, m.load = nil, load{}
	m.stuck = append(m.stuck, stuck...)
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
	m.account.report.Lost++
	m.retired, m.account.report.Retired = retired, retired
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
	m.account.report.Retired = m.account.report.Retired || m.roster.retired[m.slot.Key()] != nil
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

// paused returns a channel that is closed when a pace changes, nil unless the slot's device must
// pause.
func (m *member) paused() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pace > 0 {
		return nil
	}
	return m.roster.paceChanged
}

// endChunk asks the slot's worker, if there is one, to end its chunk.
func (m *member) endChunk() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.worker != nil {
		m.worker.EndChunk()
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
	m.account.report.WaitedInput += d
}

// begin records that the slot's worker computes a task, as a part of its load.
func (m *member) begin(t queue.Task, has load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load, m.since, m.endAsked, m.ending = has, time.Now(), false, false
	m.account.begin(t)
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

// fetches reports whether the slot's kernel waits for files.
func (m *member) fetches() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.account.awaits == wire.AwaitsFiles
}

// computed returns how many records the slot's workers have computed in this run.
func (m *member) computed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.account.records(m.load.done)
}

// addTo adds the slot to what several have done and are doing.
func (m *member) addTo(w *scaler.Work) {
	m.account.addTo(w, m.load.done)
	if m.retired {
		return
	}
	if m.account.computes(m.load.done) { // before its first batch, a worker still loads and compiles
		w.Ready++
	} else {
		w.Loading++
		w.Cold = max(w.Cold, m.account.cold(time.Now()))
	}
	w.Load = max(w.Load, m.account.oneMore())
	w.Unsteady = w.Unsteady || m.account.tuning || m.pace < 1
	if m.worker != nil {
		w.PIDs = append(w.PIDs, m.worker.PID)
		if pid := m.worker.Templates; pid > 0 && !slices.Contains(w.Templates, pid) {
			w.Templates = append(w.Templates, pid)
		}
	}
}

// timeLeft estimates how long the slot needs for the rest of its chunk, not counting the
// batches in flight, which cannot be taken from it.
func (m *member) timeLeft(now time.Time, batch int64) time.Duration {
	window := int64(2)
	if m.notified {
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
