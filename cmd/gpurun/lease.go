package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/server"
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
	case c.GPUsPerWorker > 0 && f.numGPUs%c.GPUsPerWorker != 0:
		return usagef("--num-gpus %d is not a multiple of --gpus-per-worker %d", f.numGPUs, c.GPUsPerWorker)
	case f.memory > 0 && f.memory < lease.MiB:
		return usagef("--gpu-memory %s is less than 1 MiB: use a size such as 20G", &f.memory)
	case f.wait < 0:
		return usagef("--wait must not be negative")
	}
	return nil
}

// scheduled names the scheduler that has already allocated the GPUs, "" if there is none.
func scheduled() string {
	for variable, name := range map[string]string{"SLURM_JOB_ID": "Slurm", "KUBERNETES_SERVICE_HOST": "Kubernetes"} {
		if os.Getenv(variable) != "" {
			return name
		}
	}
	return ""
}

// claimer implements orchestrator.Config.Claim for one job.
type claimer struct {
	leaseFlags
	config   orchestrator.Config
	leased   string // the name that others see
	waitsSet bool
}

func (f *leaseFlags) claimer(cmd *cobra.Command, c orchestrator.Config, id string) *claimer {
	name := f.name
	if name == "" {
		name = strings.TrimSuffix("run-"+id, "-")
	}
	return &claimer{leaseFlags: *f, config: c, leased: name, waitsSet: cmd.Flags().Changed("wait")}
}

func (c *claimer) claim(ctx context.Context, wanted orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
	switch onGPU := wanted.Devices[0].Kind == gpu.GPU; {
	case !onGPU && (c.numGPUs > 0 || c.memory > 0):
		return nil, fault.New(fault.NoDevice, "--num-gpus and --gpu-memory require GPUs, but the job would run on the CPU")
	case c.numGPUs > len(wanted.Devices):
		return nil, fault.New(fault.NoDevice, "--num-gpus %d: only %d usable", c.numGPUs, len(wanted.Devices))
	case !onGPU, c.noLease, scheduled() != "":
		return c.unleased(wanted), nil
	}
	if err := server.CheckLeasable(wanted.Devices); err != nil {
		return nil, fault.New(fault.NoDevice, "%w; or pass --no-lease to use GPUs without leasing them", err)
	}
	rules, err := lease.ReadConfig(c.services)
	if err != nil {
		return nil, err
	}
	request, err := c.request(wanted, rules)
	if err != nil {
		return nil, err
	}
	if wanted.Preview {
		return c.preview(ctx, wanted, request)
	}
	folder, err := lease.Open("")
	var held *lease.Held
	if err == nil {
		held, err = folder.Acquire(ctx, request)
	}
	var unusable *lease.UnusableError
	if errors.As(err, &unusable) {
		wanted.Notice("running without leases: " + err.Error())
		return c.unleased(wanted), nil
	}
	if err != nil {
		return nil, err
	}
	return c.given(ctx, held, wanted, request), nil
}

// unleased claims the GPUs without leasing them.
func (c *claimer) unleased(wanted orchestrator.ClaimRequest) *orchestrator.Claim {
	devices := wanted.Devices
	if c.numGPUs > 0 {
		devices = devices[:min(c.numGPUs, wanted.Most)]
	}
	return &orchestrator.Claim{Devices: devices, Keep: func([]gpu.Device) {}, Release: func() {}}
}

func (c *claimer) request(wanted orchestrator.ClaimRequest, rules lease.Config) (lease.Request, error) {
	wait := c.wait
	if !c.waitsSet {
		wait = lease.Seconds(rules.Optimization.AllocationTimeout)
	}
	quota := rules.QuotaOf(c.leased)
	if c.memory > 0 {
		if err := quota.Check(c.leased, uint64(c.memory)); err != nil {
			return lease.Request{}, err
		}
	}
	r := lease.Request{
		Name: c.leased, AtMost: wanted.Most, PerGroup: c.config.GPUsPerWorker,
		GPUs: func(ctx context.Context) ([]lease.GPU, error) {
			return server.Cards(ctx, wanted.Devices, gpu.Options{Slow: wanted.Notice})
		},
		Memory: uint64(c.memory), Prefer: quota.Prefer(), Owned: true, Limits: rules.Limits(), Quota: quota,
		Wait: wait, Waiting: func(why string) { wanted.Notice(fmt.Sprintf("waiting up to %s for GPUs: %s", wait, why)) },
	}
	switch {
	case c.numGPUs > 0:
		r.Number = min(c.numGPUs, wanted.Most)
	case wanted.Named && wanted.Most == len(wanted.Devices): // named GPUs are all required
		r.Each = true
	case wanted.Named:
		r.Number = wanted.Most
	}
	return r, nil
}

// preview returns the claim that the job would get.
func (c *claimer) preview(ctx context.Context, wanted orchestrator.ClaimRequest, request lease.Request) (*orchestrator.Claim, error) {
	folder, err := lease.OpenExisting("")
	var would lease.Preview
	if err == nil {
		would, err = folder.Preview(ctx, request)
	}
	var unusable *lease.UnusableError
	if errors.As(err, &unusable) {
		claim := c.unleased(wanted)
		claim.Notes = []string{"run would not lease its GPUs: " + err.Error()}
		return claim, nil
	}
	if err != nil {
		return nil, err
	}
	claim := c.claimOf(ctx, wanted, request, would.Missing, func(key string) bool {
		return slices.ContainsFunc(would.GPUs, func(g lease.GPU) bool { return g.Key == key })
	})
	if would.Wait != "" {
		claim.Notes = []string{fmt.Sprintf("run would wait up to %s for GPUs: %s", request.Wait, would.Wait)}
	}
	claim.Keep, claim.Release = func([]gpu.Device) {}, func() {}
	return claim, nil
}

// given returns the claim for the leases held.
func (c *claimer) given(ctx context.Context, held *lease.Held, wanted orchestrator.ClaimRequest, request lease.Request) *orchestrator.Claim {
	leases := held.Leases()
	claim := c.claimOf(ctx, wanted, request, held.Missing(), func(key string) bool {
		return slices.ContainsFunc(leases, func(l lease.Lease) bool { return l.GPU == key })
	})
	claim.Release = held.Release
	claim.Keep = func(used []gpu.Device) {
		held.Keep(func(l lease.Lease) bool {
			return slices.ContainsFunc(used, func(d gpu.Device) bool { return l.GPU == server.LeaseKey(d) })
		})
	}
	return claim
}

// claimOf selects the wanted devices that the job holds. It notes the missing ones if the
// job could have used them, and GPUs that others use without a lease.
func (c *claimer) claimOf(ctx context.Context, wanted orchestrator.ClaimRequest, request lease.Request, missing map[string]string, has func(key string) bool) *orchestrator.Claim {
	claim := &orchestrator.Claim{}
	var why []string
	var idle []gpu.Device
	for _, d := range wanted.Devices {
		key := server.LeaseKey(d)
		switch reason := missing[key]; {
		case has(key):
			claim.Devices = append(claim.Devices, d)
		case reason != "":
			why = append(why, reason)
		default:
			idle = append(idle, d)
		}
	}
	if len(idle) > 0 {
		why = append(why, orchestrator.IdleText(idle, c.config.GPUsPerWorker))
	}
	// GPUs that do not fill a group are always unused; note them. A job does not miss
	// GPUs beyond those it has work for.
	rest := len(wanted.Devices)-wanted.Most < c.config.GPUsPerWorker
	if c.numGPUs == 0 && len(why) > 0 && (len(claim.Devices) < wanted.Most || rest) {
		claim.Notes = append(claim.Notes, fmt.Sprintf("using %d of %d GPUs: %s",
			len(claim.Devices), len(wanted.Devices), strings.Join(why, "; ")))
	}
	if cards, err := request.GPUs(ctx); err == nil {
		claim.Notes = append(claim.Notes, crowded(cards, has, request)...)
	}
	return claim
}

// crowdedShare is how much of a GPU may be used without a lease before gpurun warns; a
// desktop uses less.
const crowdedShare = 0.1

// crowded warns about leased GPUs that other processes use without a lease.
func crowded(cards []lease.GPU, has func(key string) bool, request lease.Request) (notes []string) {
	if request.Memory > 0 {
		return nil // the lease accounts for memory in use
	}
	for _, card := range cards {
		if has(card.Key) && float64(card.Used) > crowdedShare*float64(card.Total) {
			notes = append(notes, fmt.Sprintf("%s: %d of its %d MiB are already in use by a process without a lease", card.Label, card.Used/lease.MiB, card.Total/lease.MiB))
		}
	}
	return notes
}

// commandLine returns the command line, shortened to fit one line.
func commandLine() string {
	text := strings.Join(append([]string{"gpurun"}, os.Args[1:]...), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
