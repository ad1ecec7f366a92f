package progress

import (
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/orchestrator"
)

// state is what the events have told so far. Bars and lines read it from their
// own goroutines.
type state struct {
	mu      sync.Mutex
	job     chunk.Counts
	total   int64 // -1: not known
	pace    pace
	slots   []slotState
	devices []*deviceState // in order of first slot
}

type slotState struct {
	device *deviceState
	phase  phase
	done   int64 // of the current chunk
	size   int64
}

// deviceState is all slots of one device.
type deviceState struct {
	name  string
	slots []int
	sum   int64 // records of finished chunks
	pace  pace
}

// phase is what a worker is at.
type phase string

const (
	waiting   phase = "waiting"
	opening   phase = "opening kernel"
	ready     phase = "ready"
	computing phase = "computing"
	lost      phase = "lost"
)

func (s *state) plan(plan orchestrator.Plan) {
	s.total = plan.Records
	s.pace.add(time.Now(), 0)
	for _, slot := range plan.Slots {
		name, _, _ := strings.Cut(slot.Name, " #")
		var device *deviceState
		for _, known := range s.devices {
			if known.name == name {
				device = known
			}
		}
		if device == nil {
			device = &deviceState{name: name}
			s.devices = append(s.devices, device)
		}
		device.slots = append(device.slots, len(s.slots))
		s.slots = append(s.slots, slotState{device: device, phase: waiting})
	}
}

// take books an event.
func (s *state) take(event orchestrator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case orchestrator.Planned:
		s.plan(e.Plan)
	case orchestrator.WorkerStarted:
		s.slots[e.Slot].phase = opening
	case orchestrator.WorkerReady:
		s.slots[e.Slot].phase = ready
	case orchestrator.WorkerLost:
		s.slots[e.Slot] = slotState{device: s.slots[e.Slot].device, phase: waiting}
		if e.Retired {
			s.slots[e.Slot].phase = lost
		}
	case orchestrator.ChunkStarted:
		slot := &s.slots[e.Slot]
		slot.phase, slot.done, slot.size = computing, 0, e.Records
	case orchestrator.Progress:
		s.slots[e.Slot].done = e.Chunk.Records
		s.advance(e.Slot, e.Job, e.Total)
	case orchestrator.ChunkDone:
		slot := &s.slots[e.Slot]
		slot.phase = ready
		slot.device.sum += e.Counts.Records
		slot.done, slot.size = 0, 0
		s.advance(e.Slot, e.Job, e.Total)
	case orchestrator.Finished:
		r := e.Report
		s.job = chunk.Counts{Records: r.In - r.Pending, Succeeded: r.Succeeded, Failed: r.Failed, Dropped: r.Dropped}
		s.total = r.In
	}
}

func (s *state) advance(slot int, job chunk.Counts, total int64) {
	now := time.Now()
	s.job, s.total = job, total
	s.pace.add(now, job.Records)
	device := s.slots[slot].device
	done, _ := s.chunkOf(device)
	device.pace.add(now, device.sum+done)
}

// chunkOf is how far a device is with its current chunks.
func (s *state) chunkOf(d *deviceState) (done, size int64) {
	for _, i := range d.slots {
		done += s.slots[i].done
		size += s.slots[i].size
	}
	return done, size
}

// phaseOf is the most telling phase of a device's slots.
func (s *state) phaseOf(d *deviceState) phase {
	best := lost
	for _, want := range []phase{waiting, opening, ready, computing} {
		for _, i := range d.slots {
			if s.slots[i].phase == want {
				best = want
			}
		}
	}
	return best
}

// phases counts the slots in each phase.
func (s *state) phases() map[phase]int {
	counts := make(map[phase]int)
	for _, slot := range s.slots {
		counts[slot.phase]++
	}
	return counts
}
