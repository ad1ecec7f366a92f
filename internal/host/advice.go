package host

import (
	"fmt"
	"math"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/view"
)

// Advice returns recommendations based on the overview, one sentence each. threshold is
// the share of memory in use above which a GPU counts as full.
func (o Overview) Advice(threshold float64) []string {
	var advice []string
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	for _, g := range o.GPUs {
		used := g.Share()
		switch {
		case g.NoInstance():
			continue // one note covers all of them
		case g.Lost != "":
			add("%s does not respond (%s): see dmesg and nvidia-smi", g.Device, g.Lost)
			continue
		case g.Problem != "" && g.Sample.Time.IsZero():
			add("%s: %s; see dmesg and nvidia-smi", g.Device, g.Problem)
			continue
		case used > threshold && len(g.Account.Leases) > 0:
			add("%s: %.0f%% of its memory is in use, above the threshold of %.0f%%: run gpurun gpus optimize %s", g.Device, 100*used, 100*threshold, g.Account.Leases[0].Name)
		case used > threshold:
			add("%s: %.0f%% of its memory is in use without a lease", g.Device, 100*used)
		}
		if celsius := g.Sample.Temperature.Or(0); celsius >= 80 {
			add("%s is at %d °C: check its cooling", g.Device, celsius)
		}
		if count := g.Sample.ECCUncorrected.Or(0); count > 0 {
			add("%s: %d uncorrected memory errors (ECC) since the driver was loaded: results may be wrong; see nvidia-smi -q -d ECC,ROW_REMAPPER and reset the GPU (nvidia-smi -r) when it is idle", g.Device, count)
		}
		for _, p := range g.Strangers {
			add("%s: process %d uses %d MiB and belongs to no running job or lease", g.Device, p.PID, p.Memory.Or(0)/lease.MiB)
		}
		if l, ok := g.oversized(); ok {
			add("%s holds %s of %s, but only %d MiB are in use: a smaller lease would leave room for others", l.Name, l.Share(), g.Device, g.MemoryUsed/lease.MiB)
		}
	}
	for _, job := range o.Jobs {
		if g, ok := o.alone(job.View); ok && g.Share() < 0.5 && job.BatchSize > 0 {
			add("job %s: only %.0f%% of %s's memory is in use: try batches of %d (now %d)", job.Job.ID, 100*g.Share(), g.Device, larger(job.BatchSize, g.Share(), threshold), job.BatchSize)
		}
	}
	return advice
}

// Share is the share of memory in use, 0 if unknown.
func (g GPU) Share() float64 {
	if g.Memory == 0 {
		return 0
	}
	return float64(g.MemoryUsed) / float64(g.Memory)
}

// oversized returns a memory lease of which at most half is in use.
func (g GPU) oversized() (lease.Lease, bool) {
	for _, l := range g.Account.Leases {
		if !l.Exclusive && g.MemoryUsed < l.Memory/2 {
			return l, true
		}
	}
	return lease.Lease{}, false
}

// alone returns the fullest GPU of a computing job that has its GPUs to itself. Memory
// used by others would say nothing about the job's batches.
func (o Overview) alone(v view.View) (fullest GPU, ok bool) {
	if v.Phase != view.PhaseRunning {
		return fullest, false
	}
	for _, w := range v.Workers {
		for _, g := range o.GPUs {
			one := GPU{Glance: g.Glance}
			if one.addWorker(w); one.Slots == 0 {
				continue
			}
			if w.Phase != view.PhaseComputing || len(g.Account.Leases) > 1 || g.Memory == 0 {
				return fullest, false
			}
			if !ok || g.Share() > fullest.Share() {
				fullest, ok = g, true
			}
		}
	}
	return fullest, ok
}

// larger is the batch size, times a power of two, that would bring memory use close to the
// threshold if batches used all of it.
func larger(batch int, used, threshold float64) int {
	if used <= 0 {
		return 2 * batch
	}
	return batch << int(max(1, min(10, math.Floor(math.Log2(threshold/used)))))
}
