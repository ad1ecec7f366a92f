package orchestrator

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// ClaimRequest is what a job wants of Config.Claim.
type ClaimRequest struct {
	// Devices are those that the job may use, in the order of the selection; at
	// least one.
	Devices []gpu.Device
	// Named says that the user has named them, instead of taking what there is.
	Named bool
	// Most is how many of them it has work for, a multiple of GPUsPerWorker. A job
	// of one chunk must not keep eight GPUs from others.
	Most int
	// Preview asks what the job would get: nothing is taken, and nobody waited for.
	Preview bool
	// Notice shows the user a line, such as who is waited for.
	Notice func(string)
}

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

// useDevices makes slots of devices. Where the user named no GPUs, those that do not
// make a whole group stay idle, and the plan says so.
func (p *prepared) useDevices(devices []gpu.Device) error {
	p.idle = nil
	if rest := len(devices) % p.config.GPUsPerWorker; p.selection.IsAll() && len(devices) > rest {
		devices, p.idle = devices[:len(devices)-rest], devices[len(devices)-rest:]
	}
	groups, err := gpu.Group(devices, p.config.GPUsPerWorker)
	if err != nil {
		return err
	}
	p.plan.Slots = makeSlots(groups, p.workersPerGPU(groups))
	return nil
}

// claimDevices asks for as many of the devices as the job has work for, and plans
// anew for what it gets. It may wait for somebody else's job to end.
func (p *prepared) claimDevices(ctx context.Context) error {
	most := p.devicesOfUse()
	if p.config.Claim == nil || most == 0 {
		return nil
	}
	claim, err := p.config.Claim(ctx, ClaimRequest{
		Devices: p.candidates(), Named: !p.selection.IsAll(), Most: most, Preview: p.preview, Notice: p.notice,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fault.New(fault.Canceled, "stopped before anything was started")
	case err != nil:
		return err
	}
	p.claim = claim
	p.plan.Notes = append(p.plan.Notes, claim.Notes...)
	if slices.EqualFunc(claim.Devices, p.slotDevices(), sameDevice) {
		return nil
	}
	if err := p.useDevices(claim.Devices); err != nil {
		return err
	}
	if err := p.fitKernel(true); err != nil {
		return err
	}
	p.describeChunks()
	return nil
}

func sameDevice(a, b gpu.Device) bool { return a.String() == b.String() }

// candidates are the devices that suit the kernel: those of the slots, and those that
// are idle only because they do not make a whole group.
func (p *prepared) candidates() []gpu.Device { return append(p.slotDevices(), p.idle...) }

// slotDevices are the devices of the slots, each once.
func (p *prepared) slotDevices() (devices []gpu.Device) {
	for _, slot := range p.plan.Slots {
		for _, d := range slot.Devices {
			if !slices.ContainsFunc(devices, func(other gpu.Device) bool { return sameDevice(d, other) }) {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// devicesOfUse is how many devices there is work for: slots are spread over all
// devices before one gets a second.
func (p *prepared) devicesOfUse() int {
	return min(p.slotsOfUse()*p.config.GPUsPerWorker, len(p.slotDevices()))
}

func (p *prepared) notice(text string) {
	if p.config.OnEvent != nil {
		p.config.OnEvent(Notice{Text: text})
	}
}

// noteIdle reports the GPUs that do not make a whole group.
func (p *prepared) noteIdle() {
	if len(p.idle) > 0 {
		all := len(p.slotDevices()) + len(p.idle)
		p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("using %d of %d GPUs: %s",
			all-len(p.idle), all, IdleText(p.idle, p.config.GPUsPerWorker)))
	}
}

// IdleText says that devices are not used, since they do not make a group for one
// more worker.
func IdleText(idle []gpu.Device, group int) string {
	names := make([]string, len(idle))
	for i, d := range idle {
		names[i] = d.String()
	}
	verb := "stay"
	if len(idle) == 1 {
		verb = "stays"
	}
	return fmt.Sprintf("%s %s idle, since each worker takes %d (--gpus-per-worker)", gpu.Enumerate(names), verb, group)
}

// keepClaimed gives back the devices that no slot uses.
func (p *prepared) keepClaimed() {
	if p.claim != nil {
		p.claim.Keep(p.slotDevices())
	}
}
