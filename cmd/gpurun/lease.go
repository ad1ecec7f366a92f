package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/gpu/lease/claim"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// leaseOptions control how a job shares the machine with others.
type leaseOptions struct {
	Name     string
	NumGPUs  int
	Memory   int64
	Wait     time.Duration
	NoLease  bool
	Services string
}

func (o leaseOptions) check(c orchestrator.Config) error {
	switch {
	case o.Name != "" && lease.CheckName(o.Name) != nil:
		return lease.CheckName(o.Name)
	case c.Devices.GPUsPerWorker > 0 && o.NumGPUs%c.Devices.GPUsPerWorker != 0:
		return fault.UnevenDevices.New("--num-gpus %d is not a multiple of --gpus-per-worker %d", o.NumGPUs, c.Devices.GPUsPerWorker)
	}
	return nil
}

// claim returns the Config.Devices.Claim of a job with this id. count, which may be nil, is called
// with the outcome of a claim of GPUs.
func (o leaseOptions) claim(id string, count func(name string, took time.Duration, ok bool)) claimFunc {
	policy := claim.Policy{
		Name: cmp.Or(o.Name, strings.TrimSuffix("run-"+id, "-")), NumGPUs: o.NumGPUs, Memory: uint64(o.Memory), NoLease: o.NoLease, Services: o.Services, Wait: o.Wait,
	}
	return func(ctx context.Context, wanted orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		started := time.Now()
		claimed, err := policy.Claim(ctx, wanted)
		if count != nil && wanted.Devices[0].Kind == gpu.GPU {
			count(policy.Name, time.Since(started), err == nil)
		}
		if errors.Is(err, claim.ErrNotLeasable) {
			err = fault.GPUsHeld.New("%w; or pass --no-lease to use GPUs without leasing them", err)
		}
		return claimed, err
	}
}
