package gpu

import (
	"slices"
	"strings"
	"time"
)

// Sample is the sensor values of a device at one moment, and never changes. A MIG instance has its own
// memory and processes; the rest is its parent's.
type Sample struct {
	Time        time.Time     `json:"time,omitzero"`
	Temperature Optional[int] `json:"temperature_c,omitzero"`
	// TemperatureError is why the temperature of a device with a sensor could not be
	// read.
	TemperatureError string `json:"temperature_error,omitempty"`
	// Slowdown is the temperature at which the card slows itself down, Shutdown the one
	// at which it turns itself off.
	Slowdown Optional[int] `json:"slowdown_c,omitzero"`
	Shutdown Optional[int] `json:"shutdown_c,omitzero"`
	// Utilization is the share of the last second in which a kernel was running.
	Utilization Optional[int]    `json:"utilization_percent,omitzero"`
	Memory      Optional[Memory] `json:"memory,omitzero"`
	Power       Optional[Watt]   `json:"power_w,omitzero"`
	PowerLimit  Optional[Watt]   `json:"power_limit_w,omitzero"`
	// Energy is counted since the driver was loaded.
	Energy      Optional[Joule]   `json:"energy_j,omitzero"`
	ClockSM     Optional[int]     `json:"clock_sm_mhz,omitzero"`
	ClockMemory Optional[int]     `json:"clock_memory_mhz,omitzero"`
	Throttle    Optional[Reasons] `json:"throttle_reasons,omitzero"`
	// ECC errors are counted since the driver was loaded.
	ECCCorrected   Optional[uint64] `json:"ecc_corrected,omitzero"`
	ECCUncorrected Optional[uint64] `json:"ecc_uncorrected,omitzero"`
	Fan            Optional[int]    `json:"fan_percent,omitzero"`
	// Processes are those that compute on the device. The driver does not show processes
	// of another PID namespace.
	Processes Optional[[]Process] `json:"processes,omitzero"`
}

// Watt and Joule are numbers with a unit.
type (
	Watt  float64
	Joule float64
)

// Memory is a device's memory in bytes. Reserved is the driver's own and not part of
// Used or Free; 0 with drivers that count it as used.
type Memory struct {
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Free     uint64 `json:"free"`
	Reserved uint64 `json:"reserved"`
}

// Process is a process that computes on a device.
type Process struct {
	PID    int              `json:"pid"`
	Memory Optional[uint64] `json:"memory,omitzero"`
}

// Reasons are why a card's clocks are lower than they could be, as NVML's bits.
type Reasons uint64

// reasonNames are NVML's bits in order, under nvidia-smi's names.
var reasonNames = [...]string{
	"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
	"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
}

const (
	softPowerCap Reasons = 1 << 2 // its power limit
	hardSlowdown Reasons = 1 << 3 // heat or the power brake; others may name which
	powerBrake   Reasons = 1 << 7 // a signal of the power supply
	heatReasons  Reasons = 1<<5 | 1<<6
)

// Slowing returns the reasons for which a card is slower than it was asked to be. The
// others are settings, or it is idle.
func (r Reasons) Slowing() Reasons {
	return r & (softPowerCap | hardSlowdown | powerBrake | heatReasons)
}

// SlowingReasons lists those, each alone.
func SlowingReasons() (list []Reasons) {
	for i := range reasonNames {
		if one := Reasons(1 << i); one.Slowing() != 0 {
			list = append(list, one)
		}
	}
	return list
}

// Thermal reports whether the card slows itself down because it is hot.
func (r Reasons) Thermal() bool {
	return r&heatReasons != 0 || r&hardSlowdown != 0 && r&powerBrake == 0
}

// PowerCapped reports whether the card slows itself down to draw less power.
func (r Reasons) PowerCapped() bool { return r&(softPowerCap|powerBrake) != 0 }

// state is the state of a card that slows itself down for these reasons. Computing at the power
// limit is normal.
func (r Reasons) state() State {
	switch {
	case r&^softPowerCap != 0:
		return Throttled
	case r != 0:
		return Normal
	}
	return Optimal
}

// Names returns the reasons, none for a card at full speed.
func (r Reasons) Names() []string {
	names := []string{}
	for i, name := range reasonNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the reasons for display.
func (r Reasons) String() string {
	if names := r.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}

// MarshalText writes the names, separated by commas.
func (r Reasons) MarshalText() ([]byte, error) { return []byte(strings.Join(r.Names(), ",")), nil }

// UnmarshalText reads what MarshalText wrote and ignores unknown names.
func (r *Reasons) UnmarshalText(text []byte) error {
	*r = 0
	for name := range strings.SplitSeq(string(text), ",") {
		if i := slices.Index(reasonNames[:], name); i >= 0 {
			*r |= 1 << i
		}
	}
	return nil
}
