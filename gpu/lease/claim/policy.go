package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// Policy is how a job shares the machine with others. The zero value leases all free GPUs
// as a whole.
type Policy struct {
	// Name is what others see; "run" if empty.
	Name string
	// NumGPUs is how many GPUs the job uses, those with the most free memory; 0 for all
	// that are free.
	NumGPUs int
	// Memory is how many bytes to lease of each GPU; 0 leases whole GPUs.
	Memory uint64
	// Wait is how long to wait for GPUs that others hold: 0 for the time that Services
	// allows, negative not to wait.
	Wait time.Duration
	// NoLease uses GPUs without leasing them, even if others hold them. Under Slurm and
	// Kubernetes, which have allocated the GPUs already, nothing is leased either.
	NoLease bool
	// Services is a file of quotas and limits; "" for lease.ConfigFile, if it exists.
	Services string
}

// Scheduler names the scheduler that has already allocated this process's GPUs, "" if
// there is none.
func Scheduler() string {
	for variable, name := range map[string]string{"SLURM_JOB_ID": "Slurm", "KUBERNETES_SERVICE_HOST": "Kubernetes"} {
		if os.Getenv(variable) != "" {
			return name
		}
	}
	return ""
}

// Claim implements orchestrator.Config.Devices.Claim. If leases are unusable on this host, the job
// runs without them, with an alarm.
func (p Policy) Claim(ctx context.Context, wanted orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
	switch onGPU := wanted.Devices[0].Kind == gpu.GPU; {
	case !onGPU && (p.NumGPUs > 0 || p.Memory > 0):
		return nil, fault.NeedsGPU.Of(fault.NoDevice, "a number of GPUs or an amount of GPU memory was requested, but the job would run on the CPU")
	case p.NumGPUs > len(wanted.Devices):
		return nil, fault.UnevenDevices.Of(fault.NoDevice, "%d GPUs requested, but only %d are usable", p.NumGPUs, len(wanted.Devices))
	case !onGPU, p.NoLease, Scheduler() != "":
		return p.unleased(wanted), nil
	}
	skipped, err := p.leave(&wanted)
	if err != nil {
		return nil, err
	}
	claim, err := p.lease(ctx, wanted)
	if err != nil {
		return nil, err
	}
	claim.Notes = append(skipped, claim.Notes...)
	return claim, nil
}

// leave leaves out the GPUs that cannot be leased, unless the user named them.
func (p Policy) leave(wanted *orchestrator.ClaimRequest) (notes []string, err error) {
	if wanted.Devices, notes, err = Leasable(wanted.Devices, wanted.Named); err != nil || wanted.Named {
		return nil, err
	}
	if p.NumGPUs > len(wanted.Devices) {
		return nil, fault.GPUsHeld.New("%d GPUs requested, but only %d can be leased: %s", p.NumGPUs, len(wanted.Devices), strings.Join(notes, "; "))
	}
	if len(wanted.Devices) < wanted.PerWorker {
		return nil, fault.GPUsHeld.New("each worker takes %d GPUs, but only %d can be leased: %s", wanted.PerWorker, len(wanted.Devices), strings.Join(notes, "; "))
	}
	wanted.Most = min(wanted.Most, len(wanted.Devices)/wanted.PerWorker*wanted.PerWorker)
	return notes, nil
}

// lease leases GPUs, all of which can be leased.
func (p Policy) lease(ctx context.Context, wanted orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
	rules, err := lease.ReadConfig(p.Services)
	if err != nil {
		return nil, err
	}
	request, err := p.request(wanted, rules)
	if err != nil {
		return nil, err
	}
	take := p.leased
	if wanted.Preview {
		take = p.preview
	}
	claim, err := take(ctx, wanted, request)
	if unusable := (*lease.UnusableError)(nil); !errors.As(err, &unusable) {
		return claim, err
	}
	claim = p.unleased(wanted)
	if wanted.Preview {
		claim.Notes = []string{"run would not lease its GPUs, so other jobs may use them, too: " + err.Error()}
	} else {
		wanted.Alarm("warning: running without leases, so other jobs may use the same GPUs: " + err.Error())
	}
	return claim, nil
}

// request translates the policy for leases.
func (p Policy) request(wanted orchestrator.ClaimRequest, rules lease.Config) (lease.Request, error) {
	wait := max(p.Wait, 0)
	if p.Wait == 0 {
		wait = lease.Seconds(rules.Optimization.AllocationTimeout)
	}
	name := cmp.Or(p.Name, "run")
	quota := rules.QuotaOf(name)
	if p.Memory > 0 {
		if err := quota.Check(name, p.Memory); err != nil {
			return lease.Request{}, err
		}
	}
	r := lease.Request{
		Name: name, AtMost: wanted.Most, PerGroup: wanted.PerWorker,
		GPUs:   cards(wanted.Devices, gpu.Options{Slow: wanted.Notice}),
		Memory: p.Memory, Prefer: quota.Prefer(), Owned: true, Limits: rules.Limits(), Quota: quota,
		Wait: wait, Waiting: func(why string) { wanted.Notice(fmt.Sprintf("waiting up to %s for GPUs: %s", wait, why)) },
	}
	switch {
	case p.NumGPUs > 0:
		r.Number = min(p.NumGPUs, wanted.Most)
	case wanted.Named && wanted.Most == len(wanted.Devices): // named GPUs are all required
		r.Each = true
	case wanted.Named:
		r.Number = wanted.Most
	}
	return r, nil
}

// cards looks at devices when a request is decided.
func cards(devices []gpu.Device, options gpu.Options) func(context.Context) ([]lease.GPU, error) {
	return func(ctx context.Context) ([]lease.GPU, error) { return Cards(ctx, devices, options) }
}

// unleased claims the GPUs without leasing them.
func (p Policy) unleased(wanted orchestrator.ClaimRequest) *orchestrator.Claim {
	devices := wanted.Devices
	if p.NumGPUs > 0 {
		devices = devices[:min(p.NumGPUs, wanted.Most)]
	}
	return &orchestrator.Claim{Devices: devices, Keep: func([]gpu.Device) {}, Release: func() {}}
}

// leased leases the GPUs of a job.
func (p Policy) leased(ctx context.Context, wanted orchestrator.ClaimRequest, request lease.Request) (*orchestrator.Claim, error) {
	folder, err := lease.Open("")
	if err != nil {
		return nil, err
	}
	held, err := folder.Acquire(ctx, request)
	if err != nil {
		return nil, err
	}
	leases := held.Leases()
	claim := p.selected(ctx, wanted, request, held.Missing(), func(key string) bool {
		return slices.ContainsFunc(leases, func(l lease.Lease) bool { return l.GPU == key })
	})
	claim.Memory, claim.Release = p.Memory, held.Release
	claim.More = func(ctx context.Context, device gpu.Device, bytes uint64) error { // without waiting for it
		further := request
		further.GPUs, further.Each, further.Memory, further.Wait = cards([]gpu.Device{device}, gpu.Options{}), true, bytes, 0
		return held.Extend(ctx, further)
	}
	claim.Keep = func(used []gpu.Device) {
		held.Keep(func(l lease.Lease) bool {
			return slices.ContainsFunc(used, func(d gpu.Device) bool { return l.GPU == Key(d) })
		})
	}
	return claim, nil
}

// preview returns the claim that the job would get.
func (p Policy) preview(ctx context.Context, wanted orchestrator.ClaimRequest, request lease.Request) (*orchestrator.Claim, error) {
	folder, err := lease.OpenExisting("")
	if err != nil {
		return nil, err
	}
	would, err := folder.Preview(ctx, request)
	if err != nil {
		return nil, err
	}
	claim := p.selected(ctx, wanted, request, would.Missing, func(key string) bool {
		return slices.ContainsFunc(would.GPUs, func(g lease.GPU) bool { return g.Key == key })
	})
	if would.Wait != "" {
		claim.Notes = []string{fmt.Sprintf("run would wait up to %s for GPUs: %s", request.Wait, would.Wait)}
	}
	return claim, nil
}
