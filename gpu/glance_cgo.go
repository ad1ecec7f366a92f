//go:build cgo && linux

package gpu

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// Gauges is part of Gauger.
func (library) Gauges(h Handle) Gauges {
	device := h.(handle).device
	var g Gauges
	if rates, ret := device.GetUtilizationRates(); ret == nvml.SUCCESS {
		load := int(rates.Gpu)
		g.Load = &load
	}
	if celsius, ret := device.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		temperature := int(celsius)
		g.Temperature = &temperature
	}
	g.Power = watts(device.GetPowerUsage())
	g.PowerLimit = watts(device.GetEnforcedPowerLimit())
	if processes, ret := device.GetComputeRunningProcesses(); ret == nvml.SUCCESS {
		for _, p := range processes {
			g.Processes = append(g.Processes, Process{PID: int(p.Pid), Memory: known(p.UsedGpuMemory)})
		}
	}
	return g
}

func watts(milliwatts uint32, ret nvml.Return) *float64 {
	if ret != nvml.SUCCESS {
		return nil
	}
	w := float64(milliwatts) / 1000
	return &w
}

// known is the memory of a process; NVML says -1 for what it does not know.
func known(bytes uint64) uint64 {
	if bytes == ^uint64(0) {
		return 0
	}
	return bytes
}
