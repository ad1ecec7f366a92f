package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const optimizeHelp = `Ask the kernels of NAME, a job or a service, to release cached GPU memory on GPUs
whose memory use exceeds the threshold. Report memory use before and after, and
processes that use GPU memory without a running job or lease. gpurun never takes
memory by force.

  gpurun gpus optimize nightly
  gpurun gpus optimize embedding-service --threshold 0.7`

// optimized is the result of one pass.
type optimized struct {
	Name      string           `json:"name"`
	Threshold float64          `json:"threshold"`
	GPUs      []optimizedGPU   `json:"gpus"`
	Jobs      []optimizedJob   `json:"jobs"`
	Strangers map[string][]int `json:"strangers"` // processes, by GPU
}

type optimizedGPU struct {
	GPU    string `json:"gpu"`
	Total  uint64 `json:"total_bytes"`
	Before uint64 `json:"before_bytes"`
	After  uint64 `json:"after_bytes"`
	uuid   string
}

// share is how much of its memory was in use before.
func (g optimizedGPU) share() float64 { return float64(g.Before) / float64(max(1, g.Total)) }

type optimizedJob struct {
	ID      string                 `json:"id"`
	Workers []orchestrator.Trimmed `json:"workers"`
	Trouble string                 `json:"trouble,omitempty"`
}

// thresholdSetting is the share of memory from which on kernels release some.
var thresholdSetting = spec.Setting{
	Name: "threshold", Field: "Threshold", Value: "SHARE",
	Help: fmt.Sprintf("SHARE of GPU memory in use above which kernels are asked to release memory (default %v, or what the services file says)", lease.DefaultConfig().Optimization.MemoryThreshold),
}

func (o *gpusOptions) newOptimize() *cobra.Command {
	return o.command(&cobra.Command{
		Use:   "optimize NAME",
		Short: "Ask kernels to release cached GPU memory",
		Long:  optimizeHelp,
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, rules lease.Config, args []string) (*result, error) {
		done, err := optimize(cmd.Context(), rules, overview(cmd.Context(), rules), args[0])
		if err != nil {
			return nil, err
		}
		return &result{done, done.write}, nil
	}, thresholdSetting)
}

// optimize asks kernels to release memory, and measures memory use again.
func optimize(ctx context.Context, rules lease.Config, before host.Overview, name string) (optimized, error) {
	jobs := jobsOf(before, name)
	gpus := gpusOf(before, name, jobs)
	if len(jobs) == 0 && len(gpus) == 0 {
		return optimized{}, fault.BadLease.New("no running job or lease is named %s; see gpurun status", name)
	}
	result := optimized{Name: name, Threshold: rules.Optimization.MemoryThreshold, GPUs: []optimizedGPU{}, Jobs: []optimizedJob{}, Strangers: map[string][]int{}}
	for _, g := range gpus {
		result.GPUs = append(result.GPUs, optimizedGPU{GPU: g.Device.String(), Total: g.Memory, Before: g.MemoryUsed, After: g.MemoryUsed, uuid: g.UUID})
		for _, p := range g.Strangers {
			result.Strangers[g.Device.String()] = append(result.Strangers[g.Device.String()], p.PID)
		}
	}
	if !result.over() {
		return result, nil
	}
	for _, job := range jobs {
		result.Jobs = append(result.Jobs, trim(ctx, job))
	}
	after, err := gpu.Look(ctx, gpu.Options{Timeout: lookTime})
	for i := range result.GPUs {
		for _, g := range after.GPUs {
			if g.UUID == result.GPUs[i].uuid {
				result.GPUs[i].After = g.MemoryUsed
			}
		}
	}
	return result, err
}

// over reports whether the memory use of a GPU exceeded the threshold.
func (o optimized) over() bool {
	return slices.ContainsFunc(o.GPUs, func(g optimizedGPU) bool { return g.share() > o.Threshold })
}

func trim(ctx context.Context, job jobs.State) optimizedJob {
	o := optimizedJob{ID: job.Job.ID, Workers: []orchestrator.Trimmed{}}
	entry, err := jobs.Find(o.ID)
	if err == nil {
		var workers []orchestrator.Trimmed
		workers, err = jobs.NewClient(entry).Trim(ctx)
		o.Workers = append(o.Workers, workers...)
	}
	if err != nil {
		o.Trouble = err.Error()
	}
	return o
}

// jobsOf returns the jobs with this name or id.
func jobsOf(o host.Overview, name string) (jobs []jobs.State) {
	for _, job := range o.Jobs {
		if job.Job.ID == name || job.Job.Name != "" && lease.SameName(job.Job.Name, name) || "run-"+job.Job.ID == name {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// gpusOf returns the GPUs leased under a name or used by its jobs.
func gpusOf(o host.Overview, name string, jobs []jobs.State) (gpus []host.GPU) {
	for _, g := range o.GPUs {
		holds := slices.ContainsFunc(g.Account.Leases, func(l lease.Lease) bool { return lease.SameName(l.Name, name) })
		for _, job := range jobs {
			for _, w := range job.Workers {
				holds = holds || slices.Contains(w.GPUs, g.UUID)
			}
		}
		if holds {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

func (o optimized) write(w io.Writer) {
	for _, g := range o.GPUs {
		if len(o.Jobs) == 0 && g.share() <= o.Threshold {
			fmt.Fprintf(w, "%s: %.0f%% of memory in use, at or below the threshold of %.0f%%: nothing to do\n", g.GPU, 100*g.share(), 100*o.Threshold)
			continue
		}
		fmt.Fprintf(w, "%s: %d MiB in use before, %d MiB after, of %d MiB\n", g.GPU, g.Before/lease.MiB, g.After/lease.MiB, g.Total/lease.MiB)
	}
	if o.over() && len(o.Jobs) == 0 {
		fmt.Fprintf(w, "%s has no gpurun job of yours: no kernel to ask\n", o.Name)
	}
	for _, job := range o.Jobs {
		if job.Trouble != "" {
			fmt.Fprintf(w, "%s\n", job.Trouble)
		}
		for _, worker := range job.Workers {
			outcome := "released unused memory"
			if worker.Fault != nil {
				outcome = worker.Fault.Message
			}
			fmt.Fprintf(w, "job %s, %s: %s\n", job.ID, worker.Device, outcome)
		}
	}
	for device, pids := range o.Strangers {
		for _, pid := range pids {
			fmt.Fprintf(w, "%s: used without a running job or lease by process %d\n", device, pid)
		}
	}
}

const watchHelp = `Check all GPUs every --interval and ask the kernels of your jobs to release memory
where use exceeds the threshold, as gpurun gpus optimize does. Print one line per
check.

  gpurun gpus watch --interval 1m`

func (o *gpusOptions) newWatch() *cobra.Command {
	return o.command(&cobra.Command{
		Use:     "watch",
		Aliases: []string{"loop"},
		Short:   "Check GPU memory periodically",
		Long:    watchHelp,
		Args:    cobra.NoArgs,
	}, func(cmd *cobra.Command, rules lease.Config, _ []string) (*result, error) {
		interval := cmp.Or(o.Interval, lease.Seconds(rules.Optimization.Interval))
		n := 0
		return nil, viewOptions{JSON: o.JSON, Watch: true, Interval: interval, scrolls: true}.watch(cmd.Context(), func(ctx context.Context) (result, bool, error) {
			n++
			c := check(ctx, rules)
			return result{c, c.write}, n == o.Count, nil
		})
	}, thresholdSetting,
		spec.Setting{Name: "interval", Kind: spec.Duration, Field: "Interval", Least: 1, Help: "time between checks (default 5m, or what the services file says)"},
		spec.Setting{Name: "count", Kind: spec.Int, Field: "Count", Help: "stop after this many checks (default: never)"})
}

// checked is one check of all GPUs.
type checked struct {
	host.Overview
	Optimized []optimized `json:"optimized"`
}

// check asks the jobs on GPUs whose memory use exceeds the threshold to release memory.
func check(ctx context.Context, rules lease.Config) checked {
	c := checked{overview(ctx, rules), []optimized{}}
	for _, job := range c.Jobs {
		gpus := gpusOf(c.Overview, "", []jobs.State{job})
		if ctx.Err() == nil && slices.ContainsFunc(gpus, func(g host.GPU) bool { return g.Share() > rules.Optimization.MemoryThreshold }) {
			result, _ := optimize(ctx, rules, c.Overview, job.Job.ID) // what it has released shows at the next check
			c.Optimized = append(c.Optimized, result)
		}
	}
	return c
}

func (c checked) write(w io.Writer) {
	fmt.Fprintf(w, "%s  %s\n", c.Time.Local().Format(time.DateTime), summary(c.Overview))
	for _, result := range c.Optimized {
		result.write(w)
	}
}

// summary describes a host in one line.
func summary(o host.Overview) string {
	if len(o.GPUs) == 0 {
		return "no GPU"
	}
	fullest := o.GPUs[0]
	for _, g := range o.GPUs {
		if g.Share() > fullest.Share() {
			fullest = g
		}
	}
	return fmt.Sprintf("GPUs: %d, leases: %d, jobs: %d; highest memory use: %s with %.0f%%",
		len(o.GPUs), len(o.Leases), len(o.Jobs), fullest.Device, 100*fullest.Share())
}
