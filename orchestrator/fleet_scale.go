package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// work is what some slots have done since the job began, and what they are doing.
type work struct {
	ready, loading          int // slots with an open kernel, and without
	records, bytes, batches int64
	busy                    time.Duration // in which their kernels had work
	load                    time.Duration // the longest time that the last opening of a kernel took
	tuning                  bool          // a worker is searching for its batch size
	slowed                  bool          // a worker must compute more slowly
	batchSize               int           // that such a search found
	pids                    []int         // of their workers
}

// work returns what the slots that match have done.
func (f *fleet) work(of func(Slot) bool) (w work) {
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
func (m *member) addTo(w *work) {
	w.records += m.report.Records + m.done
	w.bytes += m.bytes + int64(float64(m.done)*m.recordBytes)
	w.batches += m.batches
	w.busy += m.busyBefore + m.busy
	w.batchSize = max(w.batchSize, m.report.BatchSize)
	if m.retired {
		return
	}
	if m.report.ready.IsZero() {
		w.loading++
	} else {
		w.ready++
		w.load = max(w.load, m.load)
	}
	w.tuning = w.tuning || m.tuning
	w.slowed = w.slowed || m.pace < 1
	if m.worker != nil {
		w.pids = append(w.pids, m.worker.pid)
	}
}

// tuning reports whether a slot's worker is searching for its batch size.
func (f *fleet) tuning(slot Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[slot.Number].tuning
}

// measured records what a worker reports about its speed.
func (f *fleet) measured(slot Slot, p wire.Progress) {
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
func (f *fleet) fetches(slot Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[slot.Number].awaits == AwaitsFiles
}

// isReady reports whether a slot has an open kernel.
func (f *fleet) isReady(slot Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	return !m.retired && !m.report.ready.IsZero()
}

// waited records how long a slot waited for a task.
func (f *fleet) waited(slot Slot, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[slot.Number].report.WaitedInput += d
}

// openedIn records how long a slot's kernel took to open.
func (f *fleet) openedIn(slot Slot, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.load = took
	m.report.Load += took
}

// loaded returns how long after a time the first kernel was open; 0 if none was.
func (f *fleet) loaded(after time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.opened {
		return 0
	}
	return f.openedAt.Sub(after)
}

// enlist adds a slot while the job runs, if the registry has a place for it, and returns
// it with its number.
func (f *fleet) enlist(slot Slot) (_ Slot, ok bool) {
	if _, err := f.registry.Acquire(slot.key()); err != nil {
		return slot, false
	}
	f.mu.Lock()
	slot.Number = len(f.members)
	f.mu.Unlock()
	f.join(slot)
	return slot, true
}

// yield returns a slot's place in the registry.
func (f *fleet) yield(slot Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeSlot(f.members[slot.Number], false)
}

// setSharing notifies workers whether added workers share their device's memory.
func (f *fleet) setSharing(of func(Slot) bool, added bool) {
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
		_ = m.worker.conn.Send(wire.Message{Sharing: &wire.Sharing{Added: m.sharing}})
	}
}
