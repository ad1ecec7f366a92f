package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// leaseFlags control how a job shares the machine with others.
type leaseFlags struct {
	name     string
	numGPUs  int
	memory   byteSize
	wait     time.Duration
	noLease  bool
	services string
}

func (f *leaseFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "name", "", "name of the job, for gpurun pause, gpurun gpus optimize and quotas")
	flags.IntVar(&f.numGPUs, "num-gpus", 0, "use this many GPUs, those with the most free memory (default: all free GPUs)")
	flags.Var(&f.memory, "gpu-memory", "lease this much memory of each GPU (20G) and share it, instead of leasing whole GPUs")
	flags.DurationVar(&f.wait, "wait", 30*time.Second, "maximum time to wait for GPUs that others hold")
	flags.BoolVar(&f.noLease, "no-lease", false, "use GPUs without leasing them, even if others hold them (always on under Slurm and Kubernetes)")
	registerServices(flags, &f.services)
}

func registerServices(flags *pflag.FlagSet, services *string) {
	flags.StringVar(services, "services", "", "YAML `FILE` with service quotas, memory limit and reserve (default "+lease.ConfigFile+", if it exists)")
}

func (f *leaseFlags) check(flags *pflag.FlagSet, c orchestrator.Config) error {
	switch {
	case f.name != "" && lease.CheckName(f.name) != nil:
		return lease.CheckName(f.name)
	case f.numGPUs < 1 && flags.Changed("num-gpus"):
		return usagef("--num-gpus must be at least 1, not %d; omit it to use all free GPUs", f.numGPUs)
	case c.Devices.GPUsPerWorker > 0 && f.numGPUs%c.Devices.GPUsPerWorker != 0:
		return usagef("--num-gpus %d is not a multiple of --gpus-per-worker %d", f.numGPUs, c.Devices.GPUsPerWorker)
	case f.memory > 0 && f.memory < lease.MiB:
		return usagef("--gpu-memory %s is less than 1 MiB: use a size such as 20G", &f.memory)
	case f.wait < 0:
		return usagef("--wait must not be negative")
	}
	return nil
}

// claim returns the Config.Devices.Claim of a job with this id. count, which may be nil, is called
// with the outcome of a claim of GPUs.
func (f *leaseFlags) claim(flags *pflag.FlagSet, id string, count func(name string, took time.Duration, ok bool)) func(context.Context, orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
	policy := claim.Policy{
		Name: f.name, NumGPUs: f.numGPUs, Memory: uint64(f.memory), NoLease: f.noLease, Services: f.services,
	}
	if policy.Name == "" {
		policy.Name = strings.TrimSuffix("run-"+id, "-")
	}
	if flags.Changed("wait") {
		if policy.Wait = f.wait; f.wait == 0 {
			policy.Wait = -1 // zero means the configured time in Policy
		}
	}
	return func(ctx context.Context, wanted orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		started := time.Now()
		claimed, err := policy.Claim(ctx, wanted)
		if count != nil && wanted.Devices[0].Kind == gpu.GPU {
			count(policy.Name, time.Since(started), err == nil)
		}
		if errors.Is(err, claim.ErrNotLeasable) {
			err = fault.New(fault.NoDevice, "%w; or pass --no-lease to use GPUs without leasing them", err)
		}
		return claimed, err
	}
}

// commandLine returns the command line, shortened to fit one line.
func commandLine() string {
	text := strings.Join(append([]string{"gpurun"}, os.Args[1:]...), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
