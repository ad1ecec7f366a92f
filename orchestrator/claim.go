package orchestrator

import (
	"context"

	"github.com/gpurun/gpurun/gpu"
)

// Claim is what a job may use of the devices that it selected, where several jobs
// share a machine. Config.Claim makes it.
type Claim struct {
	// Devices are those that the job has for itself, or its share of.
	Devices []gpu.Device
	// Notes are lines for the user.
	Notes []string
	// Keep gives back all but these; a small input needs fewer. Release gives back
	// everything. Neither may be nil.
	Keep    func([]gpu.Device)
	Release func()
}

// claimDevices asks for the selected devices, and makes slots of what it gets. It
// may wait for somebody else's job to end.
func (p *prepared) claimDevices(ctx context.Context) error {
	if p.config.Claim != nil {
		tell := func(text string) {
			if p.config.OnEvent != nil {
				p.config.OnEvent(Notice{Text: text})
			}
		}
		claim, err := p.config.Claim(ctx, p.devices, tell)
		if err != nil {
			return err
		}
		p.claim, p.devices = claim, claim.Devices
		p.plan.Notes = append(p.plan.Notes, claim.Notes...)
	}
	groups, err := gpu.Group(p.devices, p.config.GPUsPerWorker)
	if err != nil {
		return err
	}
	p.plan.Slots = makeSlots(groups, p.workersPerGPU(groups))
	return nil
}

// keepClaimed gives back the devices that no slot uses.
func (p *prepared) keepClaimed() {
	if p.claim == nil {
		return
	}
	var used []gpu.Device
	for _, slot := range p.plan.Slots {
		used = append(used, slot.Devices...)
	}
	p.claim.Keep(used)
}
