package orchestrator

import (
	"fmt"
	"math"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// DeviceReport is how one GPU has fared.
type DeviceReport struct {
	Device string `json:"device"`
	Name   string `json:"name"`
	gpu.Totals
	// Xids counts the driver's critical errors by their numbers.
	Xids map[uint64]int `json:"xids,omitempty"`
	// Problem is why it was not monitored at the end.
	Problem string `json:"problem,omitempty"`
}

// takeHealth puts the monitor's figures, and what follows from them, into the
// report.
func (r *Report) takeHealth(all []gpu.Health) {
	for _, h := range all {
		r.Devices = append(r.Devices, DeviceReport{
			Device: h.Device.String(), Name: h.Device.Name, Totals: h.Total, Xids: h.Xids, Problem: h.Problem,
		})
	}
	r.Recommendations = r.advice()
}

const (
	// adviceTime is how long a job must have run before its figures mean anything.
	adviceTime = 30 * time.Second
	// lowMemory, lowLoad and lowBusy are percentages below which something is left
	// unused; heldBack is the share of the time above which heat has cost something.
	lowMemory, lowLoad, lowBusy = 50, 60, 60
	heldBack                    = 0.05
	// roomToFill is how full, in percent, a memory may be made.
	roomToFill = 90
)

// advice is what the figures recommend, most useful first.
func (r *Report) advice() []string {
	lines := r.memoryErrors()
	if r.Elapsed < adviceTime {
		return lines
	}
	for _, d := range r.Devices {
		if share := d.Throttled.Seconds() / r.Elapsed.Seconds(); share > heldBack {
			lines = append(lines, fmt.Sprintf("%s was slowed or paused for %.0f %% of the time (up to %s °C): see to its cooling, or lower its power limit (nvidia-smi -pl)",
				d.Device, 100*share, d.PeakTemperature))
		}
	}
	if memory, known := r.highest(func(d DeviceReport) gpu.Optional[float64] { return d.PeakMemory }); known && memory > 0 && memory < lowMemory && !r.shrunk() {
		// The model's own share does not grow with the batch, so that the next
		// power of two fits; where it does not, batches are made smaller.
		factor := 1 << int(math.Ceil(math.Log2(roomToFill/memory)))
		lines = append(lines, fmt.Sprintf("%.0f %% of memory used: try --batch-size %d", memory, r.BatchSize*min(factor, 4)))
	}
	load, known := r.highest(func(d DeviceReport) gpu.Optional[float64] { return d.Utilization })
	if busy := r.busy(); known && load < lowLoad && busy > lowBusy {
		lines = append(lines, fmt.Sprintf("the GPUs computed %.0f %% of the time while their kernels were %.0f %% busy: try --workers-per-gpu auto", load, busy))
	}
	return lines
}

// memoryErrors is about results that may be wrong, however short the job was.
func (r *Report) memoryErrors() (lines []string) {
	for _, d := range r.Devices {
		if count := d.ECCUncorrected.Or(0); count > 0 {
			lines = append(lines, fmt.Sprintf("%s had %d uncorrected memory errors (ECC) during the job: results that it computed may be wrong; "+
				"see nvidia-smi -q -d ECC,ROW_REMAPPER, reset the GPU (nvidia-smi -r) and run the job again without it", d.Device, count))
		}
	}
	return lines
}

// highest is the highest of a figure that all devices tell.
func (r *Report) highest(figure func(DeviceReport) gpu.Optional[float64]) (highest float64, known bool) {
	for _, d := range r.Devices {
		value, told := figure(d).Get()
		if !told {
			return 0, false
		}
		highest = max(highest, value)
	}
	return highest, len(r.Devices) > 0
}

// shrunk reports whether a batch did not fit a device's memory.
func (r *Report) shrunk() bool {
	for _, w := range r.Workers {
		if w.Retries > 0 {
			return true
		}
	}
	return false
}

// busy is the average share of the time, in percent, in which kernels had
// something to compute.
func (r *Report) busy() float64 {
	sum, workers := 0.0, 0
	for _, w := range r.Workers {
		if w.Batches > 0 {
			sum += 100 * w.BusyShare
			workers++
		}
	}
	return sum / float64(max(1, workers))
}
