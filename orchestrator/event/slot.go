package event

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernel"
)

// Slot is a place for one worker.
type Slot struct {
	Number int `json:"slot"`
	// Name is the label in bars and logs: "GPU 0", "GPU 0 #2".
	Name    string       `json:"name"`
	Devices []gpu.Device `json:"devices"`
	// Pin is added to the worker's environment.
	Pin []string `json:"pin"`
	// Threads is the slot's share of the CPU cores.
	Threads int `json:"threads"`

	// Rank is its place among the slots of its device, from 0. Added: gpurun may remove it,
	// because others on its device work.
	Rank  int  `json:"-"`
	Added bool `json:"-"`
}

// Devices returns the distinct devices of slots.
func Devices(slots []Slot) (devices []gpu.Device) {
	for _, slot := range slots {
		for _, d := range slot.Devices {
			if !slices.ContainsFunc(devices, d.Is) {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// Key is the name of the device, the same for all slots on it.
func (s Slot) Key() string { return s.Devices[0].String() }

// SharesDevice reports whether another slot is on the same device.
func (s Slot) SharesDevice(other Slot) bool { return s.Key() == other.Key() }

// Device describes the slot to a kernel.
func (s Slot) Device() kernel.Device {
	first := s.Devices[0]
	d := kernel.Device{Name: s.Name, Index: first.Index, UUID: first.UUID, Memory: first.Memory, Threads: s.Threads}
	if first.Kind == gpu.GPU {
		d.GPU, d.Count = true, len(s.Devices)
	}
	return d
}

// Trimmed is the result of asking one worker's kernel to free memory.
type Trimmed struct {
	Device string `json:"device"`
	// Fault is why it did not; nil if it did.
	Fault *fault.Error `json:"fault,omitempty"`
}

// ScalingReport is how many workers a device got, and why not more.
type ScalingReport struct {
	Device  string `json:"device"`
	Workers int    `json:"workers"`
	Reason  string `json:"reason,omitempty"`
}

// String returns a line for people: "GPU 0: 6 workers, 8 brought 2%".
func (r ScalingReport) String() string {
	text := fmt.Sprintf("%s: %d workers", r.Device, r.Workers)
	if r.Workers == 1 {
		text = fmt.Sprintf("%s: 1 worker", r.Device)
	}
	if r.Reason != "" {
		text += ", " + r.Reason
	}
	return text
}
