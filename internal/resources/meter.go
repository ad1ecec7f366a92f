package resources

import "time"

// Usage is what is free on the host.
type Usage struct {
	// Cores is how many this process may use, Idle how many of them nothing used since
	// the last sample; negative if unknown.
	Cores, Idle float64
	// Available is the available memory in bytes, 0 if unknown.
	Available uint64
}

// Meter measures how much of the host is idle. It is not safe for concurrent use.
type Meter struct {
	system System
	last   reading
}

// reading is what the system has counted since it started.
type reading struct {
	at          time.Time
	idle, total float64            // ticks of the allowed CPUs
	groups      map[string]float64 // CPU seconds of limited groups
}

// NewMeter returns a Meter whose first sample covers the time from now on.
func NewMeter(m System) *Meter {
	meter := &Meter{system: m}
	meter.last = meter.read()
	return meter
}

// Sample returns the usage since the last sample.
func (m *Meter) Sample() Usage {
	before, now := m.last, m.read()
	m.last = now
	u := Usage{Cores: float64(m.system.Cores()), Idle: -1, Available: m.system.Available()}
	if total := now.total - before.total; total > 0 {
		u.Idle = float64(len(m.system.allowed())) * (now.idle - before.idle) / total
	}
	seconds := now.at.Sub(before.at).Seconds()
	for _, g := range m.system.groups("cpu") {
		quota, limited := m.system.quota(g)
		used, known := now.groups[g.path]
		earlier, ok := before.groups[g.path]
		if limited && known && ok && seconds > 0 {
			u.Idle = min(u.Idle, max(0, quota-(used-earlier)/seconds))
		}
	}
	return u
}

func (m *Meter) read() reading {
	r := reading{at: time.Now(), groups: make(map[string]float64)}
	allowed := m.system.allowed()
	r.idle, r.total = m.system.Ticks(func(cpu string) bool { return allowed[cpu] })
	for _, g := range m.system.groups("cpu") {
		if used, ok := m.system.used(g); ok {
			r.groups[g.path] = used
		}
	}
	return r
}
