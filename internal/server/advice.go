package server

import (
	"fmt"
	"math"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/orchestrator"
)

// Advice says what the figures suggest to do, a sentence each. threshold is the
// share of memory in use from which it is much.
func (o Overview) Advice(threshold float64) []string {
	var advice []string
	say := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	for _, g := range o.GPUs {
		used := g.Share()
		switch {
		case g.NoInstance():
			continue // a note says so for all of them
		case g.Lost != "":
			say("%s does not answer (%s): see dmesg and nvidia-smi", g.Device, g.Lost)
			continue
		case g.Problem != "" && g.Sample.Time.IsZero():
			say("%s: %s; see dmesg and nvidia-smi", g.Device, g.Problem)
			continue
		case used > threshold && len(g.Account.Leases) > 0:
			say("%s: %.0f %% of its memory is used, over the threshold of %.0f %%: gpurun gpus optimize %s", g.Device, 100*used, 100*threshold, g.Account.Leases[0].Name)
		case used > threshold:
			say("%s: %.0f %% of its memory is used, and nobody holds a lease of it", g.Device, 100*used)
		}
		if celsius := g.Sample.Temperature.Or(0); celsius >= 80 {
			say("%s is at %d °C: look after its cooling", g.Device, celsius)
		}
		if count := g.Sample.ECCUncorrected.Or(0); count > 0 {
			say("%s: %d uncorrected memory errors (ECC) since the driver was loaded: results may be wrong; see nvidia-smi -q -d ECC,ROW_REMAPPER, and reset it (nvidia-smi -r) when it is idle", g.Device, count)
		}
		for _, p := range g.Strangers {
			say("%s: process %d uses %d MiB and belongs to no living job or lease", g.Device, p.PID, p.Memory.Or(0)/lease.MiB)
		}
		if l, ok := g.oversized(); ok {
			say("%s holds %s of %s, where %d MiB are in use: a smaller lease would leave room for others", l.Name, l.Share(), g.Device, g.MemoryUsed/lease.MiB)
		}
	}
	for _, job := range o.Jobs {
		if g, ok := o.alone(job.Status); ok && g.Share() < 0.5 && job.Status.BatchSize > 0 {
			say("job %s: %.0f %% of %s's memory is used: try --batch-size %d (now %d)", job.Job.ID, 100*g.Share(), g.Device, larger(job.Status.BatchSize, g.Share(), threshold), job.Status.BatchSize)
		}
	}
	return advice
}

// Share is how much of the memory is in use, 0 where that is not known.
func (g GPU) Share() float64 {
	if g.Memory == 0 {
		return 0
	}
	return float64(g.MemoryUsed) / float64(g.Memory)
}

// oversized returns a lease of memory of which less than half can be in use.
func (g GPU) oversized() (lease.Lease, bool) {
	for _, l := range g.Account.Leases {
		if !l.Exclusive && g.MemoryUsed < l.Memory/2 {
			return l, true
		}
	}
	return lease.Lease{}, false
}

// alone returns the fullest GPU of a job that computes, if it has its GPUs to
// itself: what others use says nothing of its batches.
func (o Overview) alone(s orchestrator.Snapshot) (fullest GPU, ok bool) {
	if s.Phase != orchestrator.PhaseRunning {
		return fullest, false
	}
	for _, w := range s.Workers {
		for _, g := range o.GPUs {
			one := GPU{Glance: g.Glance}
			if one.addWorker(w); one.Slots == 0 {
				continue
			}
			if w.Phase != orchestrator.PhaseComputing || len(g.Account.Leases) > 1 || g.Memory == 0 {
				return fullest, false
			}
			if !ok || g.Share() > fullest.Share() {
				fullest, ok = g, true
			}
		}
	}
	return fullest, ok
}

// larger is the power of two times the batch size that would bring the memory in
// use near the threshold, if all of it were the batches'.
func larger(batch int, used, threshold float64) int {
	if used <= 0 {
		return 2 * batch
	}
	return batch << int(max(1, min(10, math.Floor(math.Log2(threshold/used)))))
}
