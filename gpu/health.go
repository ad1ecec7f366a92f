package gpu

import (
	"maps"
	"time"
)

// Health is what a Monitor knows about a device.
type Health struct {
	Device Device    `json:"device"`
	State  State     `json:"state"`
	Since  time.Time `json:"since,omitzero"` // of the state
	// Problem is why the device is not monitored; empty if it is. A device that was
	// monitored before keeps its state for a while and never becomes faster.
	Problem string `json:"problem,omitempty"`
	// Pace is the fraction of time in which the device may compute; 0 means paused.
	Pace float64 `json:"pace"`
	// TooHot means that it is above its slowdown temperature.
	TooHot bool `json:"too_hot,omitempty"`
	// Sample is the latest one; Stale means that it is older than the last round.
	Sample Sample `json:"sample,omitzero"`
	Stale  bool   `json:"stale,omitempty"`
	// MemoryPercent is how full the memory is, not counting what the job itself holds.
	MemoryPercent Optional[float64] `json:"memory_percent,omitzero"`
	// Clocks are the reasons for which the card has lowered its own clocks in the last
	// ThrottleCooldown. It may be slow although its pace is 1.
	Clocks Reasons `json:"clocks_lowered,omitzero"`
	// Framework is the memory use reported by the job's kernels.
	Framework Optional[FrameworkMemory] `json:"framework,omitzero"`
	// Xids counts critical errors by Xid.
	Xids  map[uint64]int  `json:"xids,omitempty"`
	Trend Optional[Trend] `json:"trend,omitzero"`
	Total Totals          `json:"total"`
}

// Temperature is the latest one; unknown if the device is not monitored.
func (h Health) Temperature() Optional[int] {
	if h.Problem != "" {
		return Optional[int]{}
	}
	return h.Sample.Temperature
}

// FrameworkMemory is the device memory that a kernel's framework reports to hold, in
// bytes. Cached includes Allocated.
type FrameworkMemory struct {
	Library   string `json:"library,omitempty"` // "torch", "cupy", …
	Allocated uint64 `json:"allocated"`
	Cached    uint64 `json:"cached"`
}

// Totals are a device's figures since monitoring began.
type Totals struct {
	PeakTemperature Optional[int] `json:"peak_temperature_c,omitzero"`
	// PeakMemory is the most memory in use, by any process, in percent.
	PeakMemory Optional[float64] `json:"peak_memory_percent,omitzero"`
	// Utilization is the average.
	Utilization Optional[float64] `json:"utilization_percent,omitzero"`
	// Throttled is how long the device was slowed or paused; Paused is the part of it
	// in which it did not compute at all.
	Throttled time.Duration `json:"throttled_ns"`
	Paused    time.Duration `json:"paused_ns"`
	// ForMemory is the part of Throttled that only memory in use by others has caused.
	ForMemory time.Duration `json:"throttled_for_memory_ns,omitempty"`
	// PowerCapped and HeatSlowed are how long the card lowered its own clocks: to draw less
	// power, and because it was hot.
	PowerCapped time.Duration   `json:"power_capped_ns,omitempty"`
	HeatSlowed  time.Duration   `json:"heat_slowed_ns,omitempty"`
	Energy      Optional[Joule] `json:"energy_j,omitzero"`
	// ECCUncorrected is the number of uncorrected memory errors.
	ECCUncorrected Optional[uint64] `json:"ecc_uncorrected,omitzero"`
}

// watched is a monitored device, guarded by the Monitor's lock. Its totals are complete up to
// counted; its trend follows from its history.
type watched struct {
	Health
	heat   ladder
	memory ladder
	lost   bool // the driver says so
	resets int  // how often it was reset
	// hidden: it could not be read, and has not been readable long enough since visible.
	hidden  bool
	visible time.Time

	history  history
	clocksAt [len(reasonNames)]time.Time // when each of NVML's reasons was last given

	held     bool             // the job's first kernel is opening or open
	baseline Optional[uint64] // memory in use before it opened

	counted     time.Time
	firstEnergy Optional[Joule]
	lastEnergy  Optional[Joule]
	lastECC     Optional[uint64] // uncorrected errors since the driver was loaded
	load        float64          // sum of utilizations
	loads       int
}

func newWatched(d Device) *watched {
	return &watched{Health: Health{Device: d, Pace: 1, Xids: make(map[uint64]int)}}
}

// health returns a copy.
func (w *watched) health(now time.Time) Health {
	h := w.Health
	h.Xids, h.Trend, h.Total = maps.Clone(h.Xids), w.history.trend(now), w.totals(now)
	return h
}

// shown is the reported state: the worse of the two, but UNAVAILABLE if the device's
// temperature should be known and is not. A device without a temperature sensor is
// judged by its memory.
func (w *watched) shown() State {
	state := w.heat.state
	if w.memory.state > state && !w.memory.blind {
		state = w.memory.state
	}
	hidden := w.heat.blind || w.heat.state == Unavailable && w.Problem != ""
	switch {
	case w.lost, hidden && (w.memory.state < Throttled || w.memory.blind):
		return Unavailable
	case state == Unavailable, w.heat.state == Unavailable && w.memory.blind:
		return Unavailable
	}
	return max(state, w.Clocks.state())
}

// lower records the reasons for which the card lowers its clocks. They come and go with every
// batch, so each is kept for a while.
func (w *watched) lower(now time.Time, reasons Reasons, keep time.Duration) {
	w.Clocks = 0
	for i := range w.clocksAt {
		if reasons.Slowing()&(1<<i) != 0 {
			w.clocksAt[i] = now
		}
		if at := w.clocksAt[i]; !at.IsZero() && (at.Equal(now) || now.Sub(at) < keep) {
			w.Clocks |= 1 << i
		}
	}
}

// slow reports whether gpurun slows the device, monitored or not.
func (w *watched) slow() bool { return max(w.heat.state, w.memory.state) >= Throttled }

// unseen reports whether its temperature was known before and is not now.
func (w *watched) unseen() bool { return !w.heat.lost.IsZero() && !w.lost }

// hide sets hidden. A slow driver answers now and then: a device that it hides and shows
// again is reported once, and again when it has been readable for a while.
func (w *watched) hide(now time.Time, while time.Duration) {
	switch {
	case w.unseen():
		w.hidden, w.visible = true, time.Time{}
	case !w.hidden || w.lost:
	case w.visible.IsZero():
		w.visible = now
	case now.Sub(w.visible) >= while:
		w.hidden = false
	}
}

// totals are the figures up to now. The device has kept its pace since the last round.
func (w *watched) totals(now time.Time) Totals {
	total := w.Total
	passed := max(0, now.Sub(w.counted))
	if w.counted.IsZero() {
		return total
	}
	if w.Pace < 1 {
		total.Throttled += passed
	}
	if w.Pace == 0 {
		total.Paused += passed
	}
	if w.memory.state >= Throttled && w.heat.state < Throttled {
		total.ForMemory += passed
	}
	if reasons := w.Sample.Throttle.Or(0).Slowing(); !w.Stale {
		if reasons.PowerCapped() {
			total.PowerCapped += passed
		}
		if reasons.Thermal() {
			total.HeatSlowed += passed
		}
	}
	return total
}

// addSample adds a sample to the totals. reset: the device was reset since the last one.
func (w *watched) addSample(s Sample, reset bool) {
	if celsius, known := s.Temperature.Get(); known {
		w.Total.PeakTemperature = Some(max(celsius, w.Total.PeakTemperature.Or(celsius)))
	}
	if m, known := s.Memory.Get(); known && m.Total > 0 {
		percent := 100 * float64(m.Used) / float64(m.Total)
		w.Total.PeakMemory = Some(max(percent, w.Total.PeakMemory.Or(0)))
	}
	if percent, known := s.Utilization.Get(); known {
		w.load += float64(percent)
		w.loads++
		w.Total.Utilization = Some(w.load / float64(w.loads))
	}
	if energy, known := s.Energy.Get(); known {
		if w.firstEnergy.IsZero() || energy < w.firstEnergy.Or(0) { // the driver was reloaded
			w.firstEnergy = Some(energy)
		}
		reset = reset || energy < w.lastEnergy.Or(energy)
		w.lastEnergy = Some(energy)
		w.Total.Energy = Some(energy - w.firstEnergy.Or(energy))
	}
	if count, known := s.ECCUncorrected.Get(); known {
		before := w.lastECC.Or(count)
		if count < before { // the driver was reloaded
			before, reset = 0, true
		}
		w.Total.ECCUncorrected = Some(w.uncorrected() + count - before)
		w.lastECC = Some(count)
	}
	if reset {
		w.resets++
	}
}

// uncorrected is the number of uncorrected memory errors since monitoring began.
func (w *watched) uncorrected() uint64 { return w.Total.ECCUncorrected.Or(0) }

// foreign is how much memory other jobs and processes use. It subtracts what the job's
// own processes hold. If the driver does not show processes, memory allocated since the
// job's first kernel opened counts as the job's.
func (w *watched) foreign(r reading, own func(pid int) bool) Optional[uint64] {
	m, known := r.sample.Memory.Get()
	if !known {
		return Optional[uint64]{}
	}
	if jobs, known := r.own.Get(); known {
		return Some(m.Used - min(m.Used, jobs))
	}
	if !w.held {
		w.baseline = Some(m.Used)
		return Some(m.Used)
	}
	var ours uint64
	for _, p := range r.sample.Processes.Or(nil) {
		if own != nil && own(p.PID) {
			ours += p.Memory.Or(0)
		}
	}
	if ours > 0 {
		return Some(m.Used - min(m.Used, ours))
	}
	return Some(min(m.Used, w.baseline.Or(m.Used)))
}
