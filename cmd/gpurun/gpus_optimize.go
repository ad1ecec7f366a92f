package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/orchestrator"
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

type optimizedJob struct {
	ID      string                 `json:"id"`
	Workers []orchestrator.Trimmed `json:"workers"`
	Trouble string                 `json:"trouble,omitempty"`
}

func newOptimize(f *gpusFlags) *cobra.Command {
	threshold := 0.0
	cmd := &cobra.Command{
		Use:   "optimize NAME",
		Short: "Ask kernels to release cached GPU memory",
		Long:  optimizeHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := f.rules(cmd)
			if err != nil {
				return err
			}
			if rules, err = withThreshold(cmd, rules, threshold); err != nil {
				return err
			}
			result, err := optimize(cmd.Context(), rules, args[0])
			if err != nil {
				return err
			}
			if f.json {
				return writeJSON(result)
			}
			result.write(os.Stdout)
			return nil
		},
	}
	registerThreshold(cmd, &threshold)
	return cmd
}

func registerThreshold(cmd *cobra.Command, threshold *float64) {
	cmd.Flags().Float64Var(threshold, "threshold", lease.DefaultConfig().Optimization.MemoryThreshold, "share of GPU memory in use above which kernels are asked to release memory")
}

func withThreshold(cmd *cobra.Command, rules lease.Config, threshold float64) (lease.Config, error) {
	if !cmd.Flags().Changed("threshold") {
		return rules, nil
	}
	if !(threshold >= 0 && threshold <= 1) {
		return rules, fault.BadValue.New("--threshold %v: must be between 0 and 1, for example 0.85", threshold)
	}
	rules.Optimization.MemoryThreshold = threshold
	return rules, nil
}

// optimize measures memory use, asks kernels to release memory, and measures again.
func optimize(ctx context.Context, rules lease.Config, name string) (optimized, error) {
	before := overview(ctx, rules)
	jobs := jobsOf(before, name)
	gpus := gpusOf(before, name, jobs)
	if len(jobs) == 0 && len(gpus) == 0 {
		return optimized{}, fault.BadLease.New("no running job or lease is named %s; see gpurun status", name)
	}
	result := optimized{Name: name, Threshold: rules.Optimization.MemoryThreshold, GPUs: []optimizedGPU{}, Jobs: []optimizedJob{}, Strangers: map[string][]int{}}
	over := false
	for _, g := range gpus {
		over = over || g.Share() > result.Threshold
		result.GPUs = append(result.GPUs, optimizedGPU{GPU: g.Device.String(), Total: g.Memory, Before: g.MemoryUsed, After: g.MemoryUsed, uuid: g.UUID})
	}
	result.addStrangers(gpus)
	if !over {
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

func (o *optimized) addStrangers(gpus []host.GPU) {
	for _, g := range gpus {
		for _, p := range g.Strangers {
			o.Strangers[g.Device.String()] = append(o.Strangers[g.Device.String()], p.PID)
		}
	}
}

func (o optimized) write(w io.Writer) {
	for _, g := range o.GPUs {
		if share := float64(g.Before) / float64(max(1, g.Total)); len(o.Jobs) == 0 && share <= o.Threshold {
			fmt.Fprintf(w, "%s: %.0f %% of memory in use, at or below the threshold of %.0f %%: nothing to do\n", g.GPU, 100*share, 100*o.Threshold)
			continue
		}
		fmt.Fprintf(w, "%s: %d MiB in use before, %d MiB after, of %d MiB\n", g.GPU, g.Before/lease.MiB, g.After/lease.MiB, g.Total/lease.MiB)
	}
	if over := slices.ContainsFunc(o.GPUs, func(g optimizedGPU) bool { return float64(g.Before) > o.Threshold*float64(g.Total) }); over && len(o.Jobs) == 0 {
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
		fmt.Fprintf(w, "%s: used without a running job or lease by %s\n", device, processes(pids))
	}
}

func processes(pids []int) string {
	if len(pids) == 1 {
		return fmt.Sprintf("process %d", pids[0])
	}
	return fmt.Sprintf("processes %v", pids)
}

const watchHelp = `Check all GPUs every --interval and ask the kernels of your jobs to release memory
where use exceeds the threshold, as gpurun gpus optimize does. Print one line per
check.

  gpurun gpus watch --interval 1m`

func newWatch(f *gpusFlags) *cobra.Command {
	threshold, interval, count := 0.0, time.Duration(0), 0
	cmd := &cobra.Command{
		Use:     "watch",
		Aliases: []string{"loop"},
		Short:   "Check GPU memory periodically",
		Long:    watchHelp,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, err := f.rules(cmd)
			if err != nil {
				return err
			}
			if rules, err = withThreshold(cmd, rules, threshold); err != nil {
				return err
			}
			if !cmd.Flags().Changed("interval") {
				interval = lease.Seconds(rules.Optimization.Interval)
			}
			if interval <= 0 {
				return fault.TooSmall.New("--interval must be more than 0")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.watch(ctx, rules, interval, count)
		},
	}
	registerThreshold(cmd, &threshold)
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Minute, "time between checks")
	cmd.Flags().IntVar(&count, "count", 0, "stop after this many checks (0: never)")
	return cmd
}

func (f *gpusFlags) watch(ctx context.Context, rules lease.Config, interval time.Duration, count int) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if err := f.lookOnce(ctx, rules); err != nil || n == count {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// lookOnce makes one check and prints its result.
func (f *gpusFlags) lookOnce(ctx context.Context, rules lease.Config) error {
	o := overview(ctx, rules)
	if ctx.Err() != nil {
		return nil
	}
	results := []optimized{}
	for _, job := range o.Jobs {
		gpus := gpusOf(o, "", []jobs.State{job})
		if !slices.ContainsFunc(gpus, func(g host.GPU) bool { return g.Share() > rules.Optimization.MemoryThreshold }) {
			continue
		}
		result, err := optimize(ctx, rules, job.Job.ID)
		if err != nil && ctx.Err() == nil && !errors.As(err, new(*fault.Error)) {
			return err
		}
		results = append(results, result)
	}
	if f.json {
		return writeJSON(struct {
			host.Overview
			Optimized []optimized `json:"optimized"`
		}{o, results})
	}
	fmt.Printf("%s  %s\n", o.Time.Local().Format(time.DateTime), summary(o))
	for _, result := range results {
		result.write(os.Stdout)
	}
	return nil
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
	return fmt.Sprintf("GPUs: %d, leases: %d, jobs: %d; highest memory use: %s with %.0f %%",
		len(o.GPUs), len(o.Leases), len(o.Jobs), fullest.Device, 100*fullest.Share())
}
