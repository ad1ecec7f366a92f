package gpu

import (
	"strconv"

	"github.com/gpurun/gpurun/internal/resources"
)

// Host is the condition of the machine around the GPUs.
type Host struct {
	// CPU is the utilization of all cores since the previous sample.
	CPU             Optional[float64] `json:"cpu_percent,omitzero"`
	MemoryTotal     Optional[uint64]  `json:"memory_total,omitzero"`
	MemoryAvailable Optional[uint64]  `json:"memory_available,omitzero"`
}

// HostReader reads the condition of the machine. It is not safe for concurrent use.
type HostReader struct {
	system      resources.System
	idle, total float64 // CPU times of the previous reading
}

// NewHostReader returns a reader of this machine.
func NewHostReader() *HostReader { return &HostReader{} }

// Read returns the current condition, with the use of CPUs since the previous call. What the system
// does not report is unknown.
func (r *HostReader) Read() Host {
	return Host{CPU: r.cpu(), MemoryTotal: r.memory("MemTotal:"), MemoryAvailable: r.memory("MemAvailable:")}
}

func (r *HostReader) cpu() Optional[float64] {
	idle, total := r.system.Ticks(func(cpu string) bool { return cpu == "cpu" })
	past, passed := r.total, total-r.total
	share := 100 * (1 - (idle-r.idle)/passed)
	if r.idle, r.total = idle, total; past == 0 || passed <= 0 || share < 0 {
		return Optional[float64]{}
	}
	return Some(share)
}

func (r *HostReader) memory(name string) Optional[uint64] {
	kib, err := strconv.ParseUint(r.system.Field("proc/meminfo", name), 10, 64)
	if err != nil {
		return Optional[uint64]{}
	}
	return Some(kib << 10)
}
