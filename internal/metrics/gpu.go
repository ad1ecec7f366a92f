package metrics

import "github.com/gpurun/gpurun/gpu"

// GPU is one GPU and its last sample.
type GPU struct {
	// ID is its index, or GPU:INSTANCE of a MIG instance.
	ID, UUID, Model string
	gpu.Sample
	// Leased is how much of the memory leases hold; unknown if leases are off.
	Leased gpu.Optional[uint64]
}

// gpu sends the metrics of one GPU. What the card does not report is absent, never 0.
func (s sink) gpu(g GPU) {
	l := deviceLabels(true, g.ID, g.UUID, g.Model)
	if m, known := g.Memory.Get(); known {
		s.gauge("gpu_memory_usage_mb", "Memory in use, in MiB.", mib(m.Used), l)
		s.gauge("gpu_memory_total_mb", "Memory, in MiB.", mib(m.Total), l)
		s.gauge("gpu_memory_free_mb", "Free memory, in MiB.", mib(m.Free), l)
	}
	optional(s, "gpu_utilization_percent", "Share of the last second in which a kernel was running.", g.Utilization, l)
	optional(s, "gpu_temperature_celsius", "Temperature.", g.Temperature, l)
	optional(s, "gpu_power_usage_watts", "Power draw.", g.Power, l)
	optional(s, "gpu_power_limit_watts", "Power limit.", g.PowerLimit, l)
	if reasons, known := g.Throttle.Get(); known {
		for _, reason := range gpu.SlowingReasons() {
			value := 0.0
			if reasons&reason != 0 {
				value = 1
			}
			s.gauge("gpurun_gpu_clocks_lowered", "Whether the card lowers its clocks for a reason.", value, l.and("reason", reason.String()))
		}
	}
	if bytes, known := g.Leased.Get(); known {
		s.gauge("gpurun_gpu_memory_leased_mb", "Memory that leases hold, in MiB.", mib(bytes), l)
	}
}

func optional[T ~int | ~float64](s sink, name, help string, value gpu.Optional[T], l labels) {
	if n, known := value.Get(); known {
		s.gauge(name, help, float64(n), l)
	}
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// deviceLabels are the labels of NVIDIA's own exporter (DCGM), so that dashboards can join
// its series with these. A MIG instance has an id of its own ("2:0"), where DCGM repeats the
// GPU's.
func deviceLabels(isGPU bool, id, uuid, model string) labels {
	device := "CPU " + id
	if isGPU {
		device = "nvidia" + id
	}
	return labels{"gpu", id, "UUID", uuid, "device", device, "modelName", model}
}
