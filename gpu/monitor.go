package gpu

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// sampleTimeout is how long the driver may take for a sample. A healthy driver takes
	// about 10 ms; one that has to wake its card up takes seconds, during which the
	// device counts as not monitored.
	sampleTimeout = 2 * time.Second
	// A sample that took longer is used when it arrives, unless it is older than
	// staleRounds intervals or than staleTime.
	staleRounds = 2
	staleTime   = 20 * time.Second
)

// staleAfter is the age at which a sample is too old to use.
func staleAfter(interval, timeout time.Duration) time.Duration {
	return min(staleTime, staleRounds*max(interval, timeout))
}

// Clock is a source of time that tests can replace.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// MonitorOptions configure a Monitor.
type MonitorOptions struct {
	// Options is the environment; only NVML is used.
	Options
	// Config sets how devices are judged; its zero value is DefaultConfig.
	Config Config
	// Profile sets the pace of each state; default Datacenter.
	Profile Profile
	// Own reports whether a process belongs to the job: its memory does not count
	// against the job. Nil means that none does.
	Own func(pid int) bool
	// OnLost is called once for a device that the driver reports lost, OnSample after every
	// round of samples, then OnEvent for each event in order. They are called from Poll, one at
	// a time, so they must be fast. Each may be nil.
	OnLost   func(Device)
	OnSample func([]Health)
	OnEvent  func(Event)
	// Clock is the source of time; default the real one.
	Clock Clock
	// Timeout bounds the driver calls of one round for each device; default 2 s.
	Timeout time.Duration
}

// Monitor samples devices and sets the pace of each. A driver that hangs or fails for
// one device does not affect the others and never blocks a job: a device that was never
// sampled runs at full speed. One that can no longer be sampled keeps its state for the
// state's minimum duration, then becomes Unavailable. It does not become faster, except
// that a pause turns into half speed.
//
// All methods are safe for concurrent use, except that only one goroutine may call Poll
// or Run. A nil Monitor has no devices.
type Monitor struct {
	options MonitorOptions
	sampler *sampler

	hurry chan struct{} // holds a token if a sample is wanted at once

	mu      sync.Mutex
	config  Config
	devices []*watched
}

// NewMonitor returns a Monitor of these devices; CPU devices are always Unavailable.
// The caller must call Close. Its errors are fault.Usage.
func NewMonitor(devices []Device, options MonitorOptions) (*Monitor, error) {
	options.Options = options.withDefaults()
	options.Config, options.Profile = cmp.Or(options.Config, DefaultConfig()), cmp.Or(options.Profile, Datacenter)
	options.Clock, options.Timeout = cmp.Or[Clock](options.Clock, realClock{}), cmp.Or(options.Timeout, sampleTimeout)
	if err := CheckProfile(string(options.Profile)); err != nil {
		return nil, err
	}
	if err := options.Config.check(); err != nil {
		return nil, err
	}
	m := &Monitor{options: options, config: options.Config, hurry: make(chan struct{}, 1)}
	for _, d := range devices {
		w := newWatched(d)
		if d.Memory > 0 { // used until the first sample
			w.baseline = Some(d.Memory - min(d.Memory, d.MemoryFree))
		}
		m.devices = append(m.devices, w)
	}
	m.sampler = newSampler(options.NVML, devices, options.Clock, (*sensed).read)
	return m, nil
}

// Close releases the driver; call it after the last Poll. The Monitor keeps returning
// its last values. It is safe to call Close more than once.
func (m *Monitor) Close() { m.sampler.close() }

// Run polls until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m.Poll(ctx)
		select {
		case <-m.options.Clock.After(m.Config().Interval):
		case <-m.hurry:
		case <-ctx.Done():
		}
	}
}

// Hurry makes Run take its next sample at once.
func (m *Monitor) Hurry() {
	if m == nil {
		return
	}
	select {
	case m.hurry <- struct{}{}:
	default:
	}
}

// Poll takes a sample of every device and reports what has changed.
func (m *Monitor) Poll(ctx context.Context) {
	if readings := m.sample(ctx); ctx.Err() == nil {
		m.apply(readings)
	}
}

// sample takes a sample of every device.
func (m *Monitor) sample(ctx context.Context) []reading {
	timeout := m.options.Timeout
	return m.sampler.sample(ctx, timeout, staleAfter(m.Config().Interval, timeout))
}

// apply judges every device by its reading and reports what has changed.
func (m *Monitor) apply(readings []reading) {
	now := m.options.Clock.Now()
	var events []Event
	var lost []Device
	m.mu.Lock()
	for i, w := range m.devices {
		was := w.lost
		if w.lost = errors.Is(readings[i].err, ErrLost); w.lost && !was {
			lost = append(lost, w.Device)
		}
		events = append(events, m.judge(w, readings[i], was, now)...)
	}
	m.mu.Unlock()
	for _, d := range lost {
		if m.options.OnLost != nil {
			m.options.OnLost(d)
		}
	}
	// Report the paces first, so that an event's handler finds the device at its new
	// pace.
	if m.options.OnSample != nil {
		m.options.OnSample(m.Status())
	}
	for _, e := range events {
		if m.options.OnEvent != nil {
			m.options.OnEvent(e)
		}
	}
}

// judge applies a reading to a device, which may have been lost before, and returns the
// resulting events. The caller must hold m.mu.
func (m *Monitor) judge(w *watched, r reading, wasLost bool, now time.Time) []Event {
	before := *w
	w.Total, w.counted = w.totals(now), now
	w.Stale = r.err != nil
	problem := r.err
	if r.err == nil {
		w.addSample(r.sample, wasLost)
		w.Sample = r.sample
		w.history.add(r.sample, m.config.HistorySize)
		problem = m.climb(w, r, now)
	} else {
		w.heat.valueLost(now, m.config.stays())
		w.memory.valueLost(now, m.config.stays())
		w.MemoryPercent = Optional[float64]{}
	}
	if w.Problem = ""; problem != nil {
		w.Problem = problem.Error()
	}
	w.lower(now, r.sample.Throttle.Or(0), m.config.ThrottleCooldown)
	if w.State = w.shown(); w.State != before.State {
		w.Since = now
	}
	w.hide(now, m.config.ThrottleCooldown)
	w.Pace = m.options.Profile.pace(w.heat.state, w.memory.state)
	return changes(&before, w, now)
}

// climb updates a device's states from a sample, and returns why its temperature is unknown.
func (m *Monitor) climb(w *watched, r reading, now time.Time) (problem error) {
	c, s := m.config, r.sample
	if celsius, known := s.Temperature.Get(); known {
		l, limit := c.heat(s.Slowdown)
		w.heat.move(now, float64(celsius), l, c.stays())
		// It stays too hot until it is clearly below, so that the event does not flap.
		w.TooHot = float64(celsius) > limit || w.TooHot && float64(celsius) > limit-hysteresis
	} else {
		w.heat.valueLost(now, c.stays())
		problem = unreadable(s, w.heat.state != Unavailable)
	}
	w.MemoryPercent = Optional[float64]{}
	memory, _ := s.Memory.Get()
	foreign, known := w.foreign(r, m.options.Own).Get()
	if !known || memory.Total == 0 {
		w.memory.valueLost(now, c.stays())
		return problem
	}
	percent := 100 * float64(foreign) / float64(memory.Total)
	w.MemoryPercent = Some(percent)
	w.memory.move(now, percent, c.memory(), c.stays())
	return problem
}

// unreadable is why a sample has no temperature; nil for a device without a sensor.
func unreadable(s Sample, hadOne bool) error {
	switch {
	case s.TemperatureError != "":
		return errors.New("its temperature cannot be read: " + s.TemperatureError)
	case hadOne:
		return errors.New("the driver no longer reports its temperature")
	}
	return nil
}

// with calls use with a device, if it is monitored.
func (m *Monitor) with(device Device, use func(*watched)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.devices {
		if w.Device.Is(device) {
			use(w)
			return
		}
	}
}

// SpeedMultiplier returns the fraction of time in which a device may compute: 1 for
// one that is not monitored, 0 for one that must pause.
func (m *Monitor) SpeedMultiplier(device Device) float64 {
	pace := 1.0
	m.with(device, func(w *watched) { pace = w.Pace })
	return pace
}

// ShouldThrottle reports whether a device must not run at full speed.
func (m *Monitor) ShouldThrottle(device Device) bool { return m.SpeedMultiplier(device) < 1 }

// Status returns a copy of what is known about every device, in the order given to
// NewMonitor.
func (m *Monitor) Status() []Health {
	if m == nil {
		return nil
	}
	now := m.options.Clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Health, len(m.devices))
	for i, w := range m.devices {
		all[i] = w.health(now)
	}
	return all
}

// History returns a copy of the last samples of a device, oldest first.
func (m *Monitor) History(device Device) (samples []Sample) {
	m.with(device, func(w *watched) { samples = slices.Clone(w.history.samples) })
	return samples
}

// Config returns the configuration.
func (m *Monitor) Config() Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config
}

// Configure changes some settings, by their names in the file. They apply from the next
// sample on. On error, which is a fault.Usage, nothing changes.
func (m *Monitor) Configure(changes map[string]any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	config, err := m.config.With(changes)
	if err == nil {
		m.config = config
	}
	return err
}

// SetFrameworkMemory records what a kernel's framework reports about its memory.
func (m *Monitor) SetFrameworkMemory(device Device, memory FrameworkMemory) {
	m.with(device, func(w *watched) { w.Framework = Some(memory) })
}

// Hold marks that the job is about to open its first kernel on a device: memory
// allocated from now on may be the job's.
func (m *Monitor) Hold(device Device) { m.with(device, func(w *watched) { w.held = true }) }

// CountXid counts a critical error that WatchXids reported.
func (m *Monitor) CountXid(event XidEvent) {
	m.with(event.Device, func(w *watched) { w.Xids[event.Xid]++ })
}
