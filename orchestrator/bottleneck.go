package orchestrator

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

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
		gpuText = fmt.Sprintf("; the GPU was %.0f %% busy", 100*busy)
	}
	switch {
	case l.gpu.Or(0) >= busyEnough:
		return &Bottleneck{OfGPU, fmt.Sprintf("the GPU, which was %.0f %% busy", 100*l.gpu.Or(0))}
	case share(l.input) >= waitedLong:
		return &Bottleneck{OfInput, fmt.Sprintf("the input: workers waited for records %.0f %% of the time%s", 100*share(l.input), gpuText)}
	case share(l.output) >= waitedLong:
		return &Bottleneck{OfOutput, fmt.Sprintf("the output: workers waited to write results %.0f %% of the time%s", 100*share(l.output), gpuText)}
	case used >= busyEnough*float64(l.cores):
		return &Bottleneck{OfCPU, fmt.Sprintf("the CPU: kernels used %.1f of %d cores%s", used, l.cores, gpuText)}
	case l.python && each >= busyEnough && each <= 1.5:
		return &Bottleneck{OfLock, fmt.Sprintf("the interpreter lock: each Python kernel used %.1f cores, all used %.1f of %d%s", each, used, l.cores, gpuText)}
	case each >= busyEnough:
		return &Bottleneck{OfCPU, fmt.Sprintf("the CPU in the kernel: each used %.1f cores, all used %.1f of %d%s", each, used, l.cores, gpuText)}
	}
	return &Bottleneck{OfKernel, fmt.Sprintf("the kernel: it mostly waits, and used %.1f of %d cores%s", used, l.cores, gpuText)}
}
