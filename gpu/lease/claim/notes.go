package claim

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/orchestrator"
)

// selected claims the wanted devices that the job holds. It notes the missing ones if the
// job could have used them, and GPUs that others use without a lease.
func (p Policy) selected(ctx context.Context, wanted orchestrator.ClaimRequest, request lease.Request, missing map[string]string, has func(key string) bool) *orchestrator.Claim {
	claim := &orchestrator.Claim{Keep: func([]gpu.Device) {}, Release: func() {}}
	var why []string
	var idle []gpu.Device
	for _, d := range wanted.Devices {
		key := Key(d)
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
		why = append(why, orchestrator.IdleText(idle, wanted.PerWorker))
	}
	// GPUs that do not fill a group are always unused; note them. A job does not miss
	// GPUs beyond those it has work for.
	rest := len(wanted.Devices)-wanted.Most < wanted.PerWorker
	if p.NumGPUs == 0 && len(why) > 0 && (len(claim.Devices) < wanted.Most || rest) {
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
