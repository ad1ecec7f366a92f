package fleet

import (
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// What each slot is working on, and how long it will take.

// assigned records that a slot is working on a chunk.
func (f *roster) assigned(slot event.Slot, t task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.done, m.size, m.since, m.endAsked, m.ending = 0, t.chunk.Records, time.Now(), false, false
	m.recordBytes = float64(t.chunk.Length) / float64(max(1, t.chunk.Records))
}

// holds records how many records a slot has in its chunks, and how many of them are computed.
func (f *roster) holds(slot event.Slot, size, done int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.size, m.done = size, done
}

// handedBack records that a slot has handed back what it will not compute.
func (f *roster) handedBack(slot event.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.endAsked, m.ending = false, true
}

// finished records the end of a slot's chunk and what it cost.
func (f *roster) finished(slot event.Slot, done wire.Done) {
	counts, stats := done.Segment.Tally.Counts, done.Stats
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.done, m.size = 0, 0
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
	if f.oneByOne { // answers may be imported from the log, and others wait for a commit
		m.report.Records = m.computed + done.Computed
	} else {
		m.report.Records += counts.Records
	}
}

// computed returns how many records a slot's workers have computed in this run, also those that
// were lost with a worker.
func (f *roster) computed(slot event.Slot) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	if f.oneByOne { // answers are logged: none is lost
		return m.report.Records
	}
	return m.report.Records + m.done + m.repeated
}

// notifyEnd notifies every worker, once, that the job is nearing its end.
func (f *roster) notifyEnd() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.worker != nil && m.notified != m.worker {
			m.notified = m.worker
			m.worker.Send(wire.Message{Draining: &wire.Draining{}})
		}
	}
}

// endSlowest asks the worker that would finish last to end its chunk at the next batch
// boundary, or after the window that it has begun. The part it has not started comes back at
// once and is shared.
func (f *roster) endSlowest(batch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.slowest(batch); m != nil {
		m.endAsked = true
		m.worker.Send(wire.Message{Stop: &wire.Stop{Share: true}})
	}
}

// slowest returns the worker that would finish last, nil if none has much left. The caller must hold f.mu.
func (f *roster) slowest(batch int64) (slowest *member) {
	longest := minRemaining
	for _, m := range f.members {
		if m.worker == nil || m.size == 0 || m.ending {
			continue
		}
		if m.endAsked {
			return nil // one at a time: what it gives back may be enough
		}
		if left := m.timeLeft(time.Now(), batch); left > longest {
			slowest, longest = m, left
		}
	}
	return slowest
}

// timeLeft estimates how long a slot needs for the rest of its chunk, not counting the
// batches in flight, which cannot be taken from it.
func (m *member) timeLeft(now time.Time, batch int64) time.Duration {
	window := int64(2)
	if m.notified != nil {
		window = 1
	}
	left := m.size - m.done - window*batch
	if left <= 0 {
		return 0
	}
	elapsed := now.Sub(m.since)
	if m.done == 0 {
		return elapsed // it has not finished a batch in that time
	}
	return time.Duration(float64(elapsed) * float64(left) / float64(m.done))
}

// speed returns records per second of computing, 0 while unknown.
func (m *member) speed(oneByOne bool) float64 {
	if oneByOne { // busy is counted with the chunk's end, records at once
		return event.Rate(m.report.Records, m.busyBefore+m.busy)
	}
	return event.Rate(m.report.Records, m.report.Busy)
}

// speeds returns the measured speed of a slot and of the idle slots, in records per
// second. A slot without measurements counts as being as fast as this one.
func (f *roster) speeds(slot event.Slot, idle []int, batch int64) (own float64, others []float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	records, busy := m.report.Records, m.report.Busy
	switch {
	case f.oneByOne:
		busy = m.busyBefore + m.busy
	case m.size > 0: // its chunk is not booked yet; count at least one batch
		records, busy = records+max(m.done, batch), busy+time.Since(m.since)
	}
	own = max(event.Rate(records, busy), 1e-9)
	for _, number := range idle {
		speed := f.members[number].speed(f.oneByOne)
		if speed == 0 {
			speed = own
		}
		others = append(others, speed)
	}
	return own, others
}
