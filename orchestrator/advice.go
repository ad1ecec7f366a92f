package orchestrator

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// DeviceReport holds one GPU's health figures for the job.
type DeviceReport struct {
	Device string `json:"device"`
	Name   string `json:"name"`
	gpu.Totals
	// Xids counts the driver's critical errors by number.
	Xids map[uint64]int `json:"xids,omitempty"`
	// Problem is why the GPU was not monitored when the job ended.
	Problem string `json:"problem,omitempty"`
}

// Recommendation is advice derived from a job's figures.
type Recommendation struct {
	Text string
	// Setting is the setting to change with its value ("batch-size 256"); empty if it is
	// none.
	Setting string
}

// MarshalText writes the text: reports in JSON list sentences.
func (r Recommendation) MarshalText() ([]byte, error) { return []byte(r.Text), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Recommendation) UnmarshalText(text []byte) error {
	*r = Recommendation{Text: string(text)}
	return nil
}

// chosen is what needs no advice, because gpurun searches for it or the user or the kernel
// has chosen it.
type chosen struct{ batchSize, workers bool }

const (
	// adviceTime is how long a job must run before its figures mean anything.
	adviceTime = 30 * time.Second
	// lowMemory, lowLoad and lowBusy are the percentages below which a resource counts
	// as underused. heldBack is the share of time above which throttling cost
	// something.
	lowMemory, lowLoad, lowBusy = 50, 60, 60
	heldBack                    = 0.05
	// roomToFill is the memory use, in percent, that advice aims for.
	roomToFill = 90
)

// advise adds recommendations derived from the figures, most useful first. Memory errors, after
// which results may be wrong, are reported however short the job was.
func (r *Report) advise(c chosen) {
	add := func(setting, format string, args ...any) {
		r.Recommendations = append(r.Recommendations, Recommendation{Text: fmt.Sprintf(format, args...), Setting: setting})
	}
	for _, d := range r.Devices {
		if count := d.ECCUncorrected.Or(0); count > 0 {
			add("", "%s had %d uncorrected memory errors (ECC) during the job: results it computed may be wrong; "+
				"see nvidia-smi -q -d ECC,ROW_REMAPPER, reset the GPU (nvidia-smi -r) and run the job again without it", d.Device, count)
		}
	}
	if r.Elapsed < adviceTime {
		return
	}
	for _, d := range r.Devices {
		share := func(took time.Duration) float64 { return took.Seconds() / r.Elapsed.Seconds() }
		if hot := share(max(d.Throttled-d.ForMemory, d.HeatSlowed)); hot > heldBack {
			add("", "%s was throttled or paused for %.0f%% of the time (up to %s °C): improve its cooling, or lower its power limit (nvidia-smi -pl)",
				d.Device, 100*hot, d.PeakTemperature)
		}
		if full := share(d.ForMemory); full > heldBack {
			add("", "%s was slowed for %.0f%% of the time because other processes used its memory: end them (nvidia-smi shows them), or compute on other GPUs",
				d.Device, 100*full)
		}
	}
	if r.Bottleneck == nil {
		return
	}
	limit := r.Bottleneck.Kind
	larger := !c.batchSize && (limit == OfGPU || limit == OfKernel)                              // batches cost the CPU the same however large
	shrunk := slices.ContainsFunc(r.Workers, func(w WorkerReport) bool { return w.Retries > 0 }) // a batch did not fit
	if memory, known := r.highest(func(d DeviceReport) gpu.Optional[float64] { return d.PeakMemory }); larger && known && memory > 0 && memory < lowMemory && !shrunk {
		// The model's share does not grow with the batch, so the next power of two
		// fits. If it does not, batches shrink.
		factor := 1 << int(math.Ceil(math.Log2(roomToFill/memory)))
		size := r.BatchSize * min(factor, 4)
		add(fmt.Sprintf("batch-size %d", size), "%.0f%% of memory used: try batches of %d", memory, size)
	}
	load, known := r.highest(func(d DeviceReport) gpu.Optional[float64] { return d.Utilization })
	more := !c.workers && (limit == OfLock || limit == OfKernel)
	if busy := r.busy(); more && known && load < lowLoad && busy > lowBusy {
		add("workers-per-gpu auto", "the GPUs computed %.0f%% of the time while their kernels were %.0f%% busy: try several workers per GPU", load, busy)
	}
}

// highest returns the highest value of a figure. It is unknown unless every device
// reports it.
func (r *Report) highest(figure func(DeviceReport) gpu.Optional[float64]) (highest float64, known bool) {
	for _, d := range r.Devices {
		value, reported := figure(d).Get()
		if !reported {
			return 0, false
		}
		highest = max(highest, value)
	}
	return highest, len(r.Devices) > 0
}

// busy returns the average share of time, in percent, during which kernels were
// computing.
func (r *Report) busy() float64 {
	sum, workers := 0.0, 0
	for _, w := range r.Workers {
		if w.Records > 0 {
			sum += 100 * w.BusyShare
			workers++
		}
	}
	return sum / float64(max(1, workers))
}

// BottleneckKind is what limited the speed of a job.
type BottleneckKind string

// The bottlenecks. OfKernel means that the kernel waited for something that gpurun does not
// see, such as a network or gaps between launches.
const (
	OfGPU      BottleneckKind = "gpu"
	OfCPU      BottleneckKind = "cpu"
	OfLock     BottleneckKind = "interpreter-lock"
	OfInput    BottleneckKind = "input"
	OfOutput   BottleneckKind = "output"
	OfKernel   BottleneckKind = "kernel"
	busyEnough                = 0.85 // of a resource that is the bottleneck
	waitedLong                = 0.30 // of the time
)

// Bottleneck is what limited the speed of a job, with the figure that shows it.
type Bottleneck struct {
	Kind BottleneckKind `json:"kind"`
	Text string         `json:"text"`
}

// load is what a job has used.
type load struct {
	alive         time.Duration // of all workers together, since their kernels were open
	loading       time.Duration // until they were
	cpu           time.Duration // of all their processes
	input, output time.Duration // in which they waited for it
	workers       float64       // on average
	gpu           gpu.Optional[float64]
	cores         int
	python        bool
}

// bottleneck returns what limited the job; nil if it was too short to tell.
func (r *Report) bottleneck(cores int, python bool) *Bottleneck {
	l := load{cores: cores, python: python}
	for _, w := range r.Workers {
		l.alive += w.Alive
		l.loading += w.Load
		l.cpu += w.CPU
		l.input += w.WaitedInput
		l.output += w.WaitedOutput
	}
	computing := r.Elapsed - r.Load
	if computing < adviceTime/3 || l.alive <= 0 {
		return nil
	}
	l.workers = l.alive.Seconds() / computing.Seconds()
	if percent, known := r.highest(func(d DeviceReport) gpu.Optional[float64] { return d.Utilization }); known {
		l.gpu = gpu.Some(percent / 100)
	}
	return l.judge()
}

// judge names the resource that was used up.
func (l load) judge() *Bottleneck {
	share := func(d time.Duration) float64 { return d.Seconds() / l.alive.Seconds() }
	each := l.cpu.Seconds() / (l.alive + l.loading).Seconds() // cores of a worker; opening its kernel took some of that time
	used := min(each*l.workers, float64(l.cores))
	gpuText := ""
	if busy, known := l.gpu.Get(); known {
		gpuText = fmt.Sprintf("; the GPU was %.0f%% busy", 100*busy)
	}
	switch {
	case l.gpu.Or(0) >= busyEnough:
		return &Bottleneck{OfGPU, fmt.Sprintf("the GPU, which was %.0f%% busy", 100*l.gpu.Or(0))}
	case share(l.input) >= waitedLong:
		return &Bottleneck{OfInput, fmt.Sprintf("the input: workers waited for records %.0f%% of the time%s", 100*share(l.input), gpuText)}
	case share(l.output) >= waitedLong:
		return &Bottleneck{OfOutput, fmt.Sprintf("the output: workers waited to write results %.0f%% of the time%s", 100*share(l.output), gpuText)}
	case used >= busyEnough*float64(l.cores):
		return &Bottleneck{OfCPU, fmt.Sprintf("the CPU: kernels used %.1f of %d cores%s", used, l.cores, gpuText)}
	case l.python && each >= busyEnough && each <= 1.5:
		return &Bottleneck{OfLock, fmt.Sprintf("the interpreter lock: each Python kernel used %.1f cores, all used %.1f of %d%s", each, used, l.cores, gpuText)}
	case each >= busyEnough:
		return &Bottleneck{OfCPU, fmt.Sprintf("the CPU in the kernel: each used %.1f cores, all used %.1f of %d%s", each, used, l.cores, gpuText)}
	}
	return &Bottleneck{OfKernel, fmt.Sprintf("the kernel: it mostly waits, and used %.1f of %d cores%s", used, l.cores, gpuText)}
}
