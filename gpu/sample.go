package gpu

import (
	"slices"
	"strings"
	"time"
)

// Sample is how a device is doing at one moment. Of a MIG instance the memory and
// the processes are its own; the rest is its parent's.
type Sample struct {
	Time        time.Time     `json:"time,omitzero"`
	Temperature Optional[int] `json:"temperature_c,omitzero"`
	// TemperatureError is why the temperature of a device that has a sensor could not
	// be read.
	TemperatureError string `json:"temperature_error,omitempty"`
	// Slowdown is the temperature at which the card slows itself, Shutdown that at
	// which it turns itself off.
	Slowdown Optional[int] `json:"slowdown_c,omitzero"`
	Shutdown Optional[int] `json:"shutdown_c,omitzero"`
	// Utilization is the share of the last second in which something was computed.
	Utilization Optional[int]    `json:"utilization_percent,omitzero"`
	Memory      Optional[Memory] `json:"memory,omitzero"`
	Power       Optional[Watt]   `json:"power_w,omitzero"`
	PowerLimit  Optional[Watt]   `json:"power_limit_w,omitzero"`
	// Energy counts from the time at which the driver was loaded.
	Energy      Optional[Joule]   `json:"energy_j,omitzero"`
	ClockSM     Optional[int]     `json:"clock_sm_mhz,omitzero"`
	ClockMemory Optional[int]     `json:"clock_memory_mhz,omitzero"`
	Throttle    Optional[Reasons] `json:"throttle_reasons,omitzero"`
	// ECC errors since the driver was loaded.
	ECCCorrected   Optional[uint64] `json:"ecc_corrected,omitzero"`
	ECCUncorrected Optional[uint64] `json:"ecc_uncorrected,omitzero"`
	Fan            Optional[int]    `json:"fan_percent,omitzero"`
	// Processes are those that compute on the device, as far as the driver shows
	// them: not those of another PID namespace.
	Processes Optional[[]Process] `json:"processes,omitzero"`
}

// Watt and Joule are floating-point numbers with a unit.
type (
	Watt  float64
	Joule float64
)

// Memory is a device's memory in bytes. Reserved is the driver's own, and part of
// neither Used nor Free; 0 with drivers that count it as used.
type Memory struct {
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Free     uint64 `json:"free"`
	Reserved uint64 `json:"reserved"`
}

// Process is one that computes on a device.
type Process struct {
	PID    int              `json:"pid"`
	Memory Optional[uint64] `json:"memory,omitzero"`
}

// clone returns a copy that shares nothing.
func (s Sample) clone() Sample {
	if list, known := s.Processes.Get(); known {
		s.Processes = Some(slices.Clone(list))
	}
	return s
}

// Reasons is why a card's clocks are lower than they could be, as NVML's bits.
type Reasons uint64

// reasonNames are NVML's bits in order, under nvidia-smi's names.
var reasonNames = []string{
	"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
	"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
}

// thermalReasons are those that have to do with heat.
const thermalReasons Reasons = 1<<5 | 1<<6

// Thermal reports whether the card slows itself because it is hot.
func (r Reasons) Thermal() bool { return r&thermalReasons != 0 }

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

// String returns the reasons for a person.
func (r Reasons) String() string {
	if names := r.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}

// MarshalText writes the names, with a comma between.
func (r Reasons) MarshalText() ([]byte, error) { return []byte(strings.Join(r.Names(), ",")), nil }

// UnmarshalText reads what MarshalText wrote; names that it does not know are
// left out.
func (r *Reasons) UnmarshalText(text []byte) error {
	*r = 0
	for name := range strings.SplitSeq(string(text), ",") {
		if i := slices.Index(reasonNames, name); i >= 0 {
			*r |= 1 << i
		}
	}
	return nil
}
