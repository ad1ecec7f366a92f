package gpu

import (
	"maps"
	"time"
)

// Health is what a Monitor knows of a device.
type Health struct {
	Device Device    `json:"device"`
	State  State     `json:"state"`
	Since  time.Time `json:"since,omitzero"` // of the state
	// Problem is why the device is not monitored; empty if it is. A device that was
	// monitored before keeps its state for a while, and never becomes faster.
	Problem string `json:"problem,omitempty"`
	// Pace is the share of the time in which the device may compute; 0: it pauses.
	Pace float64 `json:"pace"`
	// TooHot says that it is above the temperature at which it would slow itself.
	TooHot bool `json:"too_hot,omitempty"`
	// Sample is the last there was, Stale that it is older than the last round.
	Sample Sample `json:"sample,omitzero"`
	Stale  bool   `json:"stale,omitempty"`
	// MemoryPercent is how full the memory is, without what the job itself holds.
	MemoryPercent Optional[float64] `json:"memory_percent,omitzero"`
	// Framework is what the job's kernels said of their memory.
	Framework Optional[FrameworkMemory] `json:"framework,omitzero"`
	// Xids counts the critical errors by their numbers.
	Xids  map[uint64]int  `json:"xids,omitempty"`
	Trend Optional[Trend] `json:"trend,omitzero"`
	Total Totals          `json:"total"`
}

// FrameworkMemory is what a kernel's framework says that it holds.
type FrameworkMemory struct {
	Allocated uint64 `json:"allocated"`
	Cached    uint64 `json:"cached"`
	Library   string `json:"library"` // "torch", "cupy", …
}

// Totals are a device's figures since monitoring began.
type Totals struct {
	PeakTemperature Optional[int] `json:"peak_temperature_c,omitzero"`
	// PeakMemory is the most that was used, by anybody, in percent.
	PeakMemory Optional[float64] `json:"peak_memory_percent,omitzero"`
	// Utilization is the average.
	Utilization Optional[float64] `json:"utilization_percent,omitzero"`
	// Throttled is how long the device was slowed or paused, Paused how much of
	// that it did not compute at all.
	Throttled time.Duration   `json:"throttled_ns"`
	Paused    time.Duration   `json:"paused_ns"`
	Energy    Optional[Joule] `json:"energy_j,omitzero"`
	// ECCUncorrected is the number of uncorrected memory errors.
	ECCUncorrected Optional[uint64] `json:"ecc_uncorrected,omitzero"`
}

// watched is a device under a Monitor; the Monitor's lock guards it.
type watched struct {
	device  Device
	state   State
	since   time.Time
	heat    ladder
	memory  ladder
	pace    float64
	tooHot  bool
	problem error
	stale   bool // the last round brought no sample
	lost    bool // the driver says so

	history   history
	last      Sample
	percent   Optional[float64]
	framework Optional[FrameworkMemory]
	xids      map[uint64]int

	held     bool             // the job's first kernel opens, or has
	baseline Optional[uint64] // memory in use before that

	total       Totals
	counted     time.Time // up to when the times in total are
	firstEnergy Optional[Joule]
	lastECC     Optional[uint64] // uncorrected errors since the driver was loaded
	load        float64          // sum of utilisations
	loads       int
}

// health returns a copy that shares nothing.
func (w *watched) health(now time.Time) Health {
	h := Health{
		Device: w.device, State: w.state, Since: w.since, Pace: w.pace, TooHot: w.tooHot,
		Sample: w.last.clone(), Stale: w.stale, MemoryPercent: w.percent, Framework: w.framework,
		Xids: maps.Clone(w.xids), Trend: w.history.trend(now), Total: w.totals(now),
	}
	if w.problem != nil {
		h.Problem = w.problem.Error()
	}
	return h
}

// shown is the state that others are told: the worse of the two, but UNAVAILABLE if
// its heat is not known where it should be. A device that never told a temperature,
// and need not, is judged by its memory.
func (w *watched) shown() State {
	state := w.heat.state
	if w.memory.state > state && !w.memory.blind {
		state = w.memory.state
	}
	hidden := w.heat.blind || w.heat.state == Unavailable && w.problem != nil
	switch {
	case w.lost, hidden && (w.memory.state < Throttled || w.memory.blind):
		return Unavailable
	case w.heat.state == Unavailable && w.memory.blind:
		return Unavailable
	}
	return state
}

// slow reports whether the device is held back, seen or not.
func (w *watched) slow() bool { return max(w.heat.state, w.memory.state) >= Throttled }

// unseen reports whether its temperature was known and is not any more.
func (w *watched) unseen() bool { return !w.heat.lost.IsZero() && !w.lost }

// totals are the figures up to now. Since the last round the device went at the
// pace it had.
func (w *watched) totals(now time.Time) Totals {
	total := w.total
	passed := max(0, now.Sub(w.counted))
	switch {
	case w.counted.IsZero() || w.pace == 1:
	case w.pace == 0:
		total.Paused += passed
		total.Throttled += passed
	default:
		total.Throttled += passed
	}
	return total
}

// note books what a sample says for the totals.
func (w *watched) note(s Sample) {
	if celsius, known := s.Temperature.Get(); known {
		w.total.PeakTemperature = Some(max(celsius, w.total.PeakTemperature.Or(celsius)))
	}
	if m, known := s.Memory.Get(); known && m.Total > 0 {
		percent := 100 * float64(m.Used) / float64(m.Total)
		w.total.PeakMemory = Some(max(percent, w.total.PeakMemory.Or(0)))
	}
	if percent, known := s.Utilization.Get(); known {
		w.load += float64(percent)
		w.loads++
		w.total.Utilization = Some(w.load / float64(w.loads))
	}
	if energy, known := s.Energy.Get(); known {
		if w.firstEnergy.IsZero() || energy < w.firstEnergy.Or(0) { // the driver was loaded anew
			w.firstEnergy = Some(energy)
		}
		w.total.Energy = Some(energy - w.firstEnergy.Or(energy))
	}
	if count, known := s.ECCUncorrected.Get(); known {
		before := w.lastECC.Or(count)
		if count < before { // the driver was loaded anew
			before = 0
		}
		w.total.ECCUncorrected = Some(w.uncorrected() + count - before)
		w.lastECC = Some(count)
	}
}

// uncorrected is how many uncorrected memory errors there were since monitoring began.
func (w *watched) uncorrected() uint64 { return w.total.ECCUncorrected.Or(0) }

// foreign is how much memory others use. What the job's own processes hold is
// taken off where the driver shows them; where it does not, what is in use beyond
// what was before the job's first kernel opened is taken for the job's.
func (w *watched) foreign(s Sample, own func(pid int) bool) Optional[uint64] {
	m, known := s.Memory.Get()
	if !known {
		return Optional[uint64]{}
	}
	if !w.held {
		w.baseline = Some(m.Used)
		return Some(m.Used)
	}
	var ours uint64
	for _, p := range s.Processes.Or(nil) {
		if own != nil && own(p.PID) {
			ours += p.Memory.Or(0)
		}
	}
	if ours > 0 {
		return Some(m.Used - min(m.Used, ours))
	}
	return Some(min(m.Used, w.baseline.Or(m.Used)))
}
