package fleet

import (
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// work returns what the slots that match have done.
func (f *roster) work(of func(event.Slot) bool) (w scaler.Work) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if of(m.slot) {
			m.addTo(&w)
		}
	}
	return w
}

// addTo adds a slot to what several have done.
func (m *member) addTo(w *scaler.Work) {
	w.Records += m.report.Records + m.done
	w.Bytes += m.bytes + int64(float64(m.done)*m.recordBytes)
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
		w.Load = max(w.Load, m.load)
	}
	w.Unsteady = w.Unsteady || m.tuning || m.pace < 1
	if m.worker != nil {
		w.PIDs = append(w.PIDs, m.worker.PID)
	}
}

// tuning reports whether a slot's worker is searching for its batch size.
func (f *roster) tuning(slot event.Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[slot.Number].tuning
}

// measured records what a worker reports about its speed.
func (f *roster) measured(slot event.Slot, p wire.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.busy, m.tuning, m.awaits = p.Busy, p.Tuning, p.Awaits
	if f.oneByOne {
		m.report.Records = m.computed + p.Computed
	}
	if p.Latency != nil {
		m.batches += p.Latency.Count()
	}
}

// fetches reports whether a slot's kernel waits for files.
func (f *roster) fetches(slot event.Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[slot.Number].awaits == event.AwaitsFiles
}

// waited records how long a slot waited for a task.
func (f *roster) waited(slot event.Slot, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[slot.Number].report.WaitedInput += d
}

// openedIn records how long a slot's kernel took to open.
func (f *roster) openedIn(slot event.Slot, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.load = took
	m.report.Load += took
}

// enlist adds a slot while the job runs, if the registry has a place for it, and returns
// it with its number.
func (f *roster) enlist(slot event.Slot) (_ event.Slot, ok bool) {
	if _, err := f.registry.Acquire(slot.Key()); err != nil {
		return slot, false
	}
	f.mu.Lock()
	slot.Number = len(f.members)
	f.mu.Unlock()
	f.join(slot)
	return slot, true
}

// yield returns a slot's place in the registry.
func (f *roster) yield(slot event.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeSlot(f.members[slot.Number], false)
}

// setSharing notifies workers whether added workers share their device's memory.
func (f *roster) setSharing(of func(event.Slot) bool, added bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if of(m.slot) && m.sharing != added {
			m.sharing = added
			m.sendSharing()
		}
	}
}

// sendSharing notifies a worker, if there is one.
func (m *member) sendSharing() {
	if m.worker != nil {
		m.worker.Send(wire.Message{Sharing: &wire.Sharing{Added: m.sharing}})
	}
}
