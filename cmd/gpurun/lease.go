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

// leaseFlags say how a job shares the machine with others.
type leaseFlags struct {
	name     string
	numGPUs  int
	memory   byteSize
	wait     time.Duration
	noLease  bool
	services string
}

func (f *leaseFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "name", "", "a name for the job, by which gpurun pause, gpus optimize and the quotas know it")
	flags.IntVar(&f.numGPUs, "num-gpus", 0, "so many of the GPUs, those with most free memory; unless given, all that are free")
	flags.Var(&f.memory, "gpu-memory", "lease so much memory of each GPU and share it with others, instead of holding it alone: 20G")
	flags.DurationVar(&f.wait, "wait", 30*time.Second, "how long to wait for GPUs that others hold")
	flags.BoolVar(&f.noLease, "no-lease", false, "use the GPUs whoever holds them (so it is inside Slurm and Kubernetes)")
	registerServices(flags, &f.services)
}

func registerServices(flags *pflag.FlagSet, services *string) {
	flags.StringVar(services, "services", "", "quotas of services, memory limit and reserve: a YAML `FILE` (default "+lease.ConfigFile+", if there is one)")
}

func (f *leaseFlags) check(c orchestrator.Config) error {
	switch {
	case f.name != "" && lease.CheckName(f.name) != nil:
		return lease.CheckName(f.name)
	case f.numGPUs < 0:
		return usagef("--num-gpus must not be negative")
	case c.GPUsPerWorker > 0 && f.numGPUs%c.GPUsPerWorker != 0:
		return usagef("--num-gpus %d is no multiple of --gpus-per-worker %d", f.numGPUs, c.GPUsPerWorker)
	case f.memory > 0 && f.memory < lease.MiB:
		return usagef("--gpu-memory %s is less than a MiB: write it as 20G", &f.memory)
	case f.wait < 0:
		return usagef("--wait must not be negative")
	}
	return nil
}

// scheduled names the scheduler that has given out the GPUs already, "" for none.
func scheduled() string {
	for variable, name := range map[string]string{"SLURM_JOB_ID": "Slurm", "KUBERNETES_SERVICE_HOST": "Kubernetes"} {
		if os.Getenv(variable) != "" {
			return name
		}
	}
	return ""
}

// claimer is orchestrator.Config.Claim for one job.
type claimer struct {
	leaseFlags
	config   orchestrator.Config
	leased   string // the name that others are told
	waitsSet bool
}

func (f *leaseFlags) claimer(cmd *cobra.Command, c orchestrator.Config, id string) *claimer {
	name := f.name
	if name == "" {
		name = "run-" + id
	}
	return &claimer{leaseFlags: *f, config: c, leased: name, waitsSet: cmd.Flags().Changed("wait")}
}

func (c *claimer) claim(ctx context.Context, devices []gpu.Device, tell func(string)) (*orchestrator.Claim, error) {
	if devices[0].Kind != gpu.GPU {
		if c.numGPUs > 0 || c.memory > 0 {
			return nil, fault.New(fault.NoDevice, "--num-gpus and --gpu-memory ask for GPUs, and the job has none: it would run on the CPU")
		}
		return c.unleased(devices)
	}
	if c.noLease || scheduled() != "" {
		return c.unleased(devices)
	}
	rules, err := lease.ReadConfig(c.services)
	if err != nil {
		return nil, err
	}
	request, err := c.request(devices, rules, tell)
	if err != nil {
		return nil, err
	}
	folder, err := lease.Open("")
	var held *lease.Held
	if err == nil {
		held, err = folder.Acquire(ctx, request)
	}
	var unusable *lease.UnusableError
	if errors.As(err, &unusable) {
		tell("running without leases: " + err.Error())
		return c.unleased(devices)
	}
	if err != nil {
		return nil, err
	}
	return c.given(ctx, folder, held, devices, request), nil
}

// unleased takes the GPUs as they are.
func (c *claimer) unleased(devices []gpu.Device) (*orchestrator.Claim, error) {
	if c.numGPUs > len(devices) {
		return nil, fault.New(fault.NoDevice, "--num-gpus %d: there are %d", c.numGPUs, len(devices))
	}
	if c.numGPUs > 0 {
		devices = devices[:c.numGPUs]
	}
	return &orchestrator.Claim{Devices: devices, Keep: func([]gpu.Device) {}, Release: func() {}}, nil
}

func (c *claimer) request(devices []gpu.Device, rules lease.Config, tell func(string)) (lease.Request, error) {
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
	return lease.Request{
		Name: c.leased, Command: commandLine(),
		GPUs: func(ctx context.Context) ([]lease.GPU, error) { return server.Cards(ctx, devices, gpu.Options{}) },
		// Who names GPUs wants those.
		Each:   c.config.GPUs != "all" && c.config.GPUs != "" && c.numGPUs == 0,
		Number: c.numGPUs, PerGroup: c.config.GPUsPerWorker,
		Memory: uint64(c.memory), Prefer: quota.Prefer(), Owned: true, Limits: rules.Limits(), Quota: quota,
		Wait: wait, Waiting: func(why string) { tell(fmt.Sprintf("waiting for GPUs, %s at the most: %s", wait, why)) },
	}, nil
}

// given is the claim of what is held.
func (c *claimer) given(ctx context.Context, folder *lease.Folder, held *lease.Held, devices []gpu.Device, request lease.Request) *orchestrator.Claim {
	leases := held.Leases()
	isHeld := func(d gpu.Device) bool {
		return slices.ContainsFunc(leases, func(l lease.Lease) bool { return l.GPU == server.Card(d, 0).Key })
	}
	claim := &orchestrator.Claim{Release: held.Release}
	var others []gpu.Device
	for _, d := range devices {
		if isHeld(d) {
			claim.Devices = append(claim.Devices, d)
		} else {
			others = append(others, d)
		}
	}
	claim.Keep = func(used []gpu.Device) {
		held.Keep(func(l lease.Lease) bool {
			return slices.ContainsFunc(used, func(d gpu.Device) bool { return l.GPU == server.Card(d, 0).Key })
		})
	}
	if c.numGPUs == 0 && len(others) > 0 {
		claim.Notes = append(claim.Notes, c.leftOut(folder, claim.Devices, others))
	}
	if cards, err := request.GPUs(ctx); err == nil {
		claim.Notes = append(claim.Notes, crowded(cards, leases, request)...)
	}
	return claim
}

// leftOut says which GPUs the job does not get, and because of whom.
func (c *claimer) leftOut(folder *lease.Folder, devices, others []gpu.Device) string {
	living, _ := folder.List()
	var why []string
	for _, d := range others {
		text := d.String()
		for _, l := range living {
			if l.GPU == server.Card(d, 0).Key {
				text += ": " + l.String()
				break
			}
		}
		why = append(why, text)
	}
	return fmt.Sprintf("using %d of %d GPUs; the others are taken: %s", len(devices), len(devices)+len(others), strings.Join(why, "; "))
}

// crowdedShare is how much of a GPU somebody without a lease may use before it is
// worth a line: a desktop takes less.
const crowdedShare = 0.1

// crowded warns of GPUs that the job has to itself only by agreement.
func crowded(cards []lease.GPU, leases []lease.Lease, request lease.Request) (notes []string) {
	if request.Memory > 0 {
		return nil // what is in use was left out of the account
	}
	for _, card := range cards {
		taken := slices.ContainsFunc(leases, func(l lease.Lease) bool { return l.GPU == card.Key })
		if taken && float64(card.Used) > crowdedShare*float64(card.Total) {
			notes = append(notes, fmt.Sprintf("%s: %d of its %d MiB are in use already, by somebody without a lease", card.Label, card.Used/lease.MiB, card.Total/lease.MiB))
		}
	}
	return notes
}

// commandLine is what the user typed, as far as it fits a line.
func commandLine() string {
	text := strings.Join(append([]string{"gpurun"}, os.Args[1:]...), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
