package main

import (
	"context"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// claimFunc is the type of orchestrator.Devices.Claim.
type claimFunc = func(context.Context, orchestrator.ClaimRequest) (*orchestrator.Claim, error)

// keptClaim keeps the devices that the first of several jobs has claimed: workers stay on
// them from one job to the next.
type keptClaim struct{ claim *orchestrator.Claim }

// keep returns what claims devices only once.
func (k *keptClaim) keep(claim claimFunc) claimFunc {
	if k == nil {
		return claim
	}
	return func(ctx context.Context, request orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		if k.claim == nil {
			claimed, err := claim(ctx, request)
			if err != nil {
				return nil, err
			}
			k.claim = claimed
		}
		kept := *k.claim
		kept.Notes, kept.Keep, kept.Release = nil, func([]gpu.Device) {}, func() {}
		return &kept, nil
	}
}

// release returns the devices.
func (k *keptClaim) release() {
	if k.claim != nil {
		k.claim.Release()
	}
}
