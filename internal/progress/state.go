package progress

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/orchestrator"
)

// state is the job's state according to the events so far. Bars and lines read it from
// their own goroutines.
type state struct {
	mu       sync.Mutex
	job      chunk.Counts
	answers  int64 // of records that are not among those
	oneByOne bool  // the kernel computes records, not batches
	total    int64 // -1: unknown
	estimate int64 // about how many there are if total is unknown; 0 if that is unknown too
	pace     pace  // of this run
	tokens   pace  // of those that kernels report
	slots    []slotState
	devices  []*deviceState // in order of first slot
	stopping bool
	asked    bool                 // a pause was requested
	end      *orchestrator.Report // nil while the job runs

	compact bool // no rows for devices

	// The widths of columns, which only grow.
	countWidth, statusWidth int
}

type slotState struct {
	device *deviceState
	phase  phase
	since  time.Time // of the phase
	done   int64     // of the current or the last chunk
	size   int64
	first  int64 // record of that chunk
	again  int64 // records that its lost worker had computed, which are computed again

	awaits   orchestrator.Awaits
	computed int64 // records in this run, if the kernel computes records one by one
}

// deviceState is all slots of one device.
type deviceState struct {
	name  string
	slots []int
	sum   int64 // records of finished chunks
	pace  pace
	heat  []heat // of the GPUs it is made of
}

// phase is what a worker is doing.
type phase string

const (
	waiting    phase = "waiting"
	opening    phase = "opening kernel"
	ready      phase = "ready"
	computing  phase = "computing"
	fetching   phase = "fetching files" // shown of a worker that computes, if its kernel waits for them
	held       phase = "waiting for the server"
	restarting phase = "restarting"
	lost       phase = "lost"
	yielded    phase = "yielded" // exited to free memory for the other workers on its device
)

// between is how long a worker may be without a chunk before it is shown as ready: the gap
// between two chunks is not worth showing.
const between = 300 * time.Millisecond

func (s *state) plan(plan orchestrator.Plan, now time.Time) {
	s.total, s.oneByOne = plan.Records, plan.Info.Concurrency > 0
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

// take applies an event.
func (s *state) take(event orchestrator.Event, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case orchestrator.Planned:
		s.plan(e.Plan, now)
	case orchestrator.Resuming:
		s.job, s.answers, s.total = e.Job.Counts, e.Answers, e.Total
	case orchestrator.WorkerStarted:
		s.join(e, now)
		s.enter(e.Slot, opening, now)
	case orchestrator.WorkerReady:
		s.enter(e.Slot, ready, now)
	case orchestrator.WorkerLost:
		s.workerLost(e, now)
	case orchestrator.WorkerLeft:
		slot := s.enter(e.Slot, yielded, now)
		slot.done, slot.size = 0, 0
		s.job, s.answers = e.Job, e.Answers
	case orchestrator.DeviceSample:
		s.warm(e)
	case orchestrator.ChunkStarted:
		slot := s.enter(e.Slot, computing, now)
		slot.done, slot.size, slot.first = 0, e.Records, e.First
		// Start measuring here: the time to load a model says nothing about its speed.
		s.measure(slot.device, now)
	case orchestrator.Progress:
		slot := s.slot(e.Slot)
		slot.done, slot.computed, slot.awaits = e.Chunk.Records, e.Computed, e.Awaits
		slot.hold(e.Held, e.Chunk.Records+e.Ahead)
		s.job, s.answers, s.total, s.estimate = e.Job, e.Answers, e.Total, e.Estimate
		s.use(e.Usage, now)
		s.measure(slot.device, now)
	case orchestrator.ChunkDone:
		slot := s.slot(e.Slot)
		switch {
		case slot.phase != computing || slot.first != e.First: // it has exited, or computes another one
		case e.Held > 0: // it continues behind those
			slot.first += e.Counts.Records
		default:
			slot = s.enter(e.Slot, ready, now)
			slot.done, slot.again = e.Counts.Records, 0
		}
		slot.device.sum += e.Counts.Records
		slot.computed = e.Computed
		slot.hold(e.Held, e.Ahead)
		s.job, s.answers, s.total, s.estimate = e.Job, e.Answers, e.Total, e.Estimate
		s.use(e.Usage, now)
		s.measure(slot.device, now)
	case orchestrator.ChunkGivenUp:
		for i := range s.slots {
			if s.slots[i].first == e.First {
				s.slots[i].again = 0
			}
		}
	case orchestrator.Paused:
		s.asked = true
	case orchestrator.Resumed:
		s.asked = false
	case orchestrator.Stopping:
		s.stopping = true
	case orchestrator.Finished:
		r := e.Report
		s.answers = r.Answers
		s.job = chunk.Counts{Records: r.In - r.Pending, Succeeded: r.Succeeded, Failed: r.Failed, Dropped: r.Dropped}
		if s.total, s.end = r.In, &r; r.Uncounted {
			s.total = -1
		}
	}
}

// join adds the slot of a worker that was not planned: gpurun added it.
func (s *state) join(e orchestrator.WorkerStarted, now time.Time) {
	name, _, _ := strings.Cut(e.Device, " #")
	for _, device := range s.devices {
		if device.name == name && e.Slot >= len(s.slots) && e.Slot < len(s.slots)+maxJoin {
			for len(s.slots) < e.Slot { // that join in another order
				s.slots = append(s.slots, slotState{device: &deviceState{}, phase: yielded, since: now})
			}
			device.slots = append(device.slots, e.Slot)
			s.slots = append(s.slots, slotState{device: device, since: now})
			return
		}
		if device.name == name && e.Slot < len(s.slots) && s.slots[e.Slot].device.name == "" {
			device.slots = append(device.slots, e.Slot)
			s.slots[e.Slot] = slotState{device: device, since: now}
			return
		}
	}
}

// maxJoin is how far a slot's number may be ahead.
const maxJoin = 1024

// slot returns the slot of an event. For a slot that was not planned, it returns one that
// is never shown: a display must not crash a job.
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

// workerLost records a lost worker. Its progress on the chunk will be repeated, but it was
// work: the rate stays the same.
func (s *state) workerLost(e orchestrator.WorkerLost, now time.Time) {
	next, slot := restarting, s.slot(e.Slot)
	if slot.phase == computing && !s.oneByOne { // answers are logged
		s.pace.lower(slot.done)
		slot.device.pace.lower(slot.done)
		slot.again = slot.done
	}
	if e.Retired {
		next, slot.again = lost, 0 // other workers compute them
	}
	s.enter(e.Slot, next, now)
	slot.done, slot.size, slot.awaits = 0, 0, ""
	s.job, s.answers = e.Job, e.Answers
}

// hold sets how many records of all its chunks the slot has computed. Only the worker of a
// kernel that computes records one by one holds several at a time.
func (s *slotState) hold(records, done int64) {
	if records > 0 {
		s.size, s.done = records, done
	}
}

// measure records the progress of a device and of the job. It counts slots instead of
// using e.Job: events of different slots can overtake each other, events of one slot
// cannot.
func (s *state) measure(d *deviceState, now time.Time) {
	d.pace.add(now, s.work(d))
	all := int64(0)
	for _, device := range s.devices {
		all += s.work(device)
	}
	s.pace.add(now, all)
}

// work is how many records a device has computed. Answers that a worker imports from the log
// are no work.
func (s *state) work(d *deviceState) (n int64) {
	if s.oneByOne {
		for _, i := range d.slots {
			n += s.slots[i].computed
		}
		return n
	}
	n = d.sum
	for _, i := range d.slots {
		if s.slots[i].phase == computing {
			n += s.slots[i].done
		}
	}
	return n
}

// done is how many records have an answer, wherever it is.
func (s *state) done() int64 { return s.job.Records + s.answers }

// rate is the rate of the job: at the end, that of the report.
func (s *state) rate(now time.Time) float64 {
	if s.end != nil {
		return s.end.Rate
	}
	return s.pace.calm(now)
}

// use takes what the kernels have counted.
func (s *state) use(usage map[string]int64, now time.Time) {
	if n := usage[orchestrator.Tokens(usage)]; n > 0 {
		s.tokens.add(now, n)
	}
}

// tokenText is how many tokens there are per second, "" if there are none.
func (s *state) tokenText(now time.Time) string {
	rate := s.tokens.calm(now)
	if s.end != nil {
		rate = s.end.TokenRate
	}
	if rate <= 0 {
		return ""
	}
	return shortCount(int64(math.Round(rate))) + " tokens/s"
}

// paused reports whether the job is paused: by request, or because every remaining device
// is.
func (s *state) paused() bool {
	if s.asked {
		return true
	}
	waits := false
	for i := range s.slots {
		switch slot := &s.slots[i]; {
		case slot.phase == lost || slot.phase == yielded:
		case slot.device.hottest().pace > 0:
			return false
		default:
			waits = true
		}
	}
	return waits
}

// held reports whether every worker that is not lost waits for a server.
func (s *state) held(now time.Time) bool {
	counts := s.phases(now)
	return counts[held] > 0 && counts[held]+counts[lost]+counts[yielded] == len(s.slots)
}

// size returns how many records there are, or -1 if that is unknown. about means that it is
// an estimate.
func (s *state) size() (records int64, about bool) {
	if s.total < 0 && s.estimate > 0 {
		return max(s.estimate, s.done()), true
	}
	return s.total, false
}

// eta is how long the rest will take, false if unknown.
func (s *state) eta(now time.Time) (time.Duration, bool) {
	size, _ := s.size()
	rate, rest := s.rate(now), size-s.done()
	if s.end != nil || s.paused() || s.held(now) || size < 0 || rest <= 0 || rate <= 0 || !s.pace.settled(now) {
		return 0, false
	}
	return time.Duration(min(float64(rest)/rate, longest.Seconds()) * float64(time.Second)), true
}

// longest caps the ETA, which a tiny rate would make overflow.
const longest = 9999 * time.Hour

// chunkOf is the progress of a device on its current chunks.
func (s *state) chunkOf(d *deviceState) (done, size int64) {
	for _, i := range d.slots {
		done += s.slots[i].done
		size += s.slots[i].size
	}
	return done, size
}

// retrying is how many records the slots of a device compute again, after a loss that set
// back their bars. The user sees it until they have been computing for a while.
func (s *state) retrying(d *deviceState, now time.Time) (records int64) {
	for _, i := range d.slots {
		if slot := &s.slots[i]; slot.phase != computing || now.Sub(slot.since) < retryShown {
			records += slot.again
		}
	}
	return records
}

const retryShown = 5 * time.Second

// phaseOf is the most relevant phase of a device's slots, and how many are in it.
func (s *state) phaseOf(d *deviceState, now time.Time) (phase, int) {
	counts := make(map[phase]int)
	for _, i := range d.slots {
		counts[s.slots[i].shown(now)]++
	}
	for _, p := range []phase{computing, fetching, held, opening, restarting, lost, ready, yielded} {
		if counts[p] > 0 {
			return p, counts[p]
		}
	}
	return waiting, counts[waiting]
}

// shown is the phase to display.
func (s *slotState) shown(now time.Time) phase {
	shown := s.phase
	if s.phase == ready && s.size > 0 && now.Sub(s.since) < between {
		shown = computing
	}
	if shown != computing {
		return shown
	}
	switch s.awaits {
	case orchestrator.AwaitsFiles:
		return fetching
	case orchestrator.AwaitsServer:
		return held
	}
	return computing
}

// phases counts the slots in each phase.
func (s *state) phases(now time.Time) map[phase]int {
	counts := make(map[phase]int)
	for i := range s.slots {
		counts[s.slots[i].shown(now)]++
	}
	return counts
}
