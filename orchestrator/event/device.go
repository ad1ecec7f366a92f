package event

import (
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// DeviceEvent reports a change of a device's state. Its name is the kind of event:
// state_change, throttle, resume, critical, overheat, unseen, seen, memory_errors,
// clocks or reset.
type DeviceEvent struct {
	Kind   gpu.EventKind `json:"-"`
	Device string        `json:"device"`
	From   gpu.State     `json:"from"`
	To     gpu.State     `json:"to"`
	// Pace is the share of time in which the device may compute from now on.
	Pace        float64               `json:"pace"`
	Temperature gpu.Optional[int]     `json:"temperature_c,omitzero"`
	Memory      gpu.Optional[float64] `json:"memory_percent,omitzero"`
	// Clocks are the reasons for which the card lowers its own clocks, now or lately.
	Clocks gpu.Reasons `json:"throttle_reasons,omitzero"`
	// ECCUncorrected is the number of uncorrected memory errors since the job started.
	ECCUncorrected gpu.Optional[uint64] `json:"ecc_uncorrected,omitzero"`
	// Problem is why the device is not monitored.
	Problem string `json:"problem,omitempty"`
}

// DeviceSample reports a device's health every few seconds.
type DeviceSample struct {
	Device string    `json:"device"`
	State  gpu.State `json:"state"`
	Pace   float64   `json:"pace"`
	// Sample has no time of its own: the event has it.
	gpu.Sample
	// Framework is how much device memory the kernels' framework holds, as the kernels
	// report.
	Framework gpu.Optional[gpu.FrameworkMemory] `json:"framework,omitzero"`
	// Problem is why its temperature, or all of its data, is unknown.
	Problem string `json:"problem,omitempty"`
}

// EventName is the name in JSON events.
func (e DeviceEvent) EventName() string { return string(e.Kind) }

// EventName is the name in JSON events.
func (DeviceSample) EventName() string { return "device_sample" }

// NewDeviceEvent returns a monitor's event.
func NewDeviceEvent(e gpu.Event) DeviceEvent {
	return DeviceEvent{
		Kind: e.Kind, Device: e.Device.String(), From: e.From, To: e.State, Pace: e.Pace,
		Temperature: e.Temperature(), Memory: e.MemoryPercent, Clocks: e.Clocks, ECCUncorrected: e.Total.ECCUncorrected, Problem: e.Problem,
	}
}

// NewDeviceSample returns the health of a device.
func NewDeviceSample(h gpu.Health) DeviceSample {
	sample := DeviceSample{Device: h.Device.String(), State: h.State, Pace: h.Pace, Problem: h.Problem}
	if sample.Slowdown = h.Sample.Slowdown; !h.Stale {
		sample.Sample, sample.Framework = h.Sample, h.Framework
		sample.Time = time.Time{}
	}
	return sample
}
