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
	mu       sync.Mutex
	job      chunk.Counts
	total    int64 // -1: not known
	pace     pace  // of what is computed here
	slots    []slotState
	devices  []*deviceState // in order of first slot
	stopping bool
	asked    bool                 // to pause
	end      *orchestrator.Report // nil while the job runs

	compact bool // devices have no rows

	// The widths of columns, which only grow.
	countWidth, statusWidth int
}

type slotState struct {
	device *deviceState
	phase  phase
	since  time.Time // of the phase
	done   int64     // of the current chunk, or of the last
	size   int64
}

// deviceState is all slots of one device.
type deviceState struct {
	name  string
	slots []int
	sum   int64 // records of finished chunks
	pace  pace
	heat  []heat // of the GPUs it is made of
}

// phase is what a worker is at.
type phase string

const (
	waiting    phase = "waiting"
	opening    phase = "opening kernel"
	ready      phase = "ready"
	computing  phase = "computing"
	restarting phase = "restarting"
	lost       phase = "lost"
	left       phase = "left" // made room for others
)

// between is how long a worker may be without a chunk before it is shown as
// ready: from one chunk to the next it is not worth a word.
const between = 300 * time.Millisecond

func (s *state) plan(plan orchestrator.Plan, now time.Time) {
	s.total = plan.Records
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
			for _, part := range slot.Devices {
				device.heat = append(device.heat, heat{name: part.String(), pace: 1})
			}
			s.devices = append(s.devices, device)
		}
		device.slots = append(device.slots, len(s.slots))
		s.slots = append(s.slots, slotState{device: device, phase: waiting, since: now})
	}
}

// take books an event.
func (s *state) take(event orchestrator.Event, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case orchestrator.Planned:
		s.plan(e.Plan, now)
	case orchestrator.Resuming:
		s.job, s.total = e.Job, e.Total
	case orchestrator.WorkerStarted:
		s.enter(e.Slot, opening, now)
	case orchestrator.WorkerReady:
		s.enter(e.Slot, ready, now)
	case orchestrator.WorkerLost:
		s.lose(e, now)
	case orchestrator.WorkerLeft:
		slot := s.enter(e.Slot, left, now)
		slot.done, slot.size = 0, 0
	case orchestrator.DeviceSample:
		s.warm(e)
	case orchestrator.ChunkStarted:
		slot := s.enter(e.Slot, computing, now)
		slot.done, slot.size = 0, e.Records
		// The clocks start here: what a model takes to load says nothing of how
		// fast it is.
		s.measure(slot.device, now)
	case orchestrator.Progress:
		slot := s.slot(e.Slot)
		slot.done = e.Chunk.Records
		s.job, s.total = e.Job, e.Total
		s.measure(slot.device, now)
	case orchestrator.ChunkDone:
		slot := s.enter(e.Slot, ready, now)
		slot.device.sum += e.Counts.Records
		slot.done = e.Counts.Records
		s.job, s.total = e.Job, e.Total
		s.measure(slot.device, now)
	case orchestrator.Paused:
		s.asked = true
	case orchestrator.Resumed:
		s.asked = false
	case orchestrator.Stopping:
		s.stopping = true
	case orchestrator.Finished:
		r := e.Report
		s.job = chunk.Counts{Records: r.In - r.Pending, Succeeded: r.Succeeded, Failed: r.Failed, Dropped: r.Dropped}
		if s.total, s.end = r.In, &r; r.Uncounted {
			s.total = -1
		}
	}
}

// slot is that of an event. One that was not planned is booked where nobody
// sees it: no display may end a job.
func (s *state) slot(n int) *slotState {
	if n < 0 || n >= len(s.slots) {
		return &slotState{device: &deviceState{}}
	}
	return &s.slots[n]
}

func (s *state) enter(n int, p phase, now time.Time) *slotState {
	slot := s.slot(n)
	slot.phase, slot.since = p, now
	return slot
}

// lose books a lost worker. What it had done of its chunk will be done again,
// but it was work: the rate stays what it was.
func (s *state) lose(e orchestrator.WorkerLost, now time.Time) {
	next := restarting
	if e.Retired {
		next = lost
	}
	slot := s.slot(e.Slot)
	if slot.phase == computing {
		s.pace.lower(slot.done)
		slot.device.pace.lower(slot.done)
	}
	s.enter(e.Slot, next, now)
	slot.done, slot.size = 0, 0
}

// measure notes how far a device, and with it the whole, is. Slots are counted,
// not e.Job: events of several slots overtake each other, one slot's do not.
func (s *state) measure(d *deviceState, now time.Time) {
	d.pace.add(now, s.work(d))
	all := int64(0)
	for _, device := range s.devices {
		all += s.work(device)
	}
	s.pace.add(now, all)
}

// work is how many records a device has computed.
func (s *state) work(d *deviceState) int64 {
	n := d.sum
	for _, i := range d.slots {
		if s.slots[i].phase == computing {
			n += s.slots[i].done
		}
	}
	return n
}

// rate is that of the whole: at the end as the report has it.
func (s *state) rate(now time.Time) float64 {
	if s.end != nil {
		return s.end.Rate
	}
	return s.pace.calm(now)
}

// paused reports whether nothing is computed for now: it was asked to pause, or every
// device that is left must.
func (s *state) paused() bool {
	if s.asked {
		return true
	}
	waits := false
	for i := range s.slots {
		switch slot := &s.slots[i]; {
		case slot.phase == lost || slot.phase == left:
		case slot.device.hottest().pace > 0:
			return false
		default:
			waits = true
		}
	}
	return waits
}

// eta is how long the rest will take, false if that cannot be told.
func (s *state) eta(now time.Time) (time.Duration, bool) {
	rate, rest := s.rate(now), s.total-s.job.Records
	if s.end != nil || s.paused() || s.total < 0 || rest <= 0 || rate <= 0 || !s.pace.settled(now) {
		return 0, false
	}
	return time.Duration(min(float64(rest)/rate, longest.Seconds()) * float64(time.Second)), true
}

// longest is where an ETA ends: a rate of almost nothing gives no time at all.
const longest = 9999 * time.Hour

// chunkOf is how far a device is with its current chunks.
func (s *state) chunkOf(d *deviceState) (done, size int64) {
	for _, i := range d.slots {
		done += s.slots[i].done
		size += s.slots[i].size
	}
	return done, size
}

// phaseOf is the most telling phase of a device's slots, and how many are in it.
func (s *state) phaseOf(d *deviceState, now time.Time) (phase, int) {
	counts := make(map[phase]int)
	for _, i := range d.slots {
		counts[s.slots[i].shown(now)]++
	}
	for _, p := range []phase{computing, opening, restarting, lost, ready, left} {
		if counts[p] > 0 {
			return p, counts[p]
		}
	}
	return waiting, counts[waiting]
}

// shown is the phase that a person is told.
func (s *slotState) shown(now time.Time) phase {
	if s.phase == ready && s.size > 0 && now.Sub(s.since) < between {
		return computing
	}
	return s.phase
}

// phases counts the slots in each phase.
func (s *state) phases(now time.Time) map[phase]int {
	counts := make(map[phase]int)
	for i := range s.slots {
		counts[s.slots[i].shown(now)]++
	}
	return counts
}
