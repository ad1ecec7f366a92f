package orchestrator

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// ClaimRequest is what a job asks of Config.Devices.Claim.
type ClaimRequest struct {
	// Devices are the devices the job may use, in selection order; at least one.
	Devices []gpu.Device
	// Named means that the user named the devices instead of taking all available ones.
	Named bool
	// Most is how many devices the job has work for, a multiple of GPUsPerWorker. A job
	// of one chunk must not keep eight GPUs from others.
	Most int
	// PerWorker is Config.Devices.GPUsPerWorker.
	PerWorker int
	// Preview asks what the job would get, without taking devices or waiting.
	Preview bool
	// Notice shows the user a line, for example which job it is waiting for. Alarm shows one
	// that even a quiet display must not hide.
	Notice, Alarm func(string)
}

// Claim holds the devices that a job may use of those it selected, when several jobs
// share a machine. Config.Devices.Claim creates it.
type Claim struct {
	// Devices are the ones that the job has to itself or shares.
	Devices []gpu.Device
	// Notes are lines for the user.
	Notes []string
	// Memory is how many bytes of each device the job holds; 0 for all of it. More acquires
	// further bytes of a device before gpurun adds a worker that would exceed them; nil
	// means that there are none.
	Memory uint64
	More   func(ctx context.Context, device gpu.Device, bytes uint64) error
	// Keep returns all devices but these, since a small input needs fewer. Release
	// returns all of them. Neither may be nil.
	Keep    func([]gpu.Device)
	Release func()
}

// useDevices builds slots from devices. If the user named no GPUs, those that do not
// fill a group stay idle, and the plan reports them.
func (p *prepared) useDevices(devices []gpu.Device) error {
	p.idle = nil
	if rest := len(devices) % p.config.Devices.GPUsPerWorker; p.selection.IsAll() && len(devices) > rest {
		devices, p.idle = devices[:len(devices)-rest], devices[len(devices)-rest:]
	}
	groups, err := gpu.Group(devices, p.config.Devices.GPUsPerWorker)
	if err != nil {
		return err
	}
	p.plan.Slots = makeSlots(groups, p.workersPerGPU(groups), p.config.cores(), p.config.Devices.WorkersPerGPU == AutoWorkers)
	return nil
}

// claimDevices claims as many devices as the job has work for and replans for what it
// gets. It may wait for another user's job to end.
func (p *prepared) claimDevices(ctx context.Context) error {
	most := p.usefulDevices()
	if p.config.Devices.Claim == nil || most == 0 {
		return nil
	}
	claim, err := p.config.Devices.Claim(ctx, ClaimRequest{
		Devices: p.candidates(), Named: !p.selection.IsAll(), Most: most, PerWorker: p.config.Devices.GPUsPerWorker, Preview: p.preview, Notice: p.notice, Alarm: p.alarm,
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
		p.idle = nil // the claim left them out, and reports it
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

// candidates returns the devices that suit the kernel: those of the slots, and those
// that are idle only because they do not fill a group.
func (p *prepared) candidates() []gpu.Device { return append(p.slotDevices(), p.idle...) }

// slotDevices returns the distinct devices of the slots.
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

// usefulDevices returns how many devices there is work for: slots are spread over all
// devices before any gets a second.
func (p *prepared) usefulDevices() int {
	return min(p.usefulSlots()*p.config.Devices.GPUsPerWorker, len(p.slotDevices()))
}

func (p *prepared) notice(text string) {
	p.emit(Notice{Text: text})
}

func (p *prepared) alarm(text string) {
	p.emit(Notice{Text: text, Alarm: true})
}

// noteIdle reports the GPUs that do not fill a group.
func (p *prepared) noteIdle() {
	if len(p.idle) > 0 {
		all := len(p.slotDevices()) + len(p.idle)
		p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("using %d of %d GPUs: %s",
			all-len(p.idle), all, IdleText(p.idle, p.config.Devices.GPUsPerWorker)))
	}
}

// IdleText returns a line saying that devices are unused because they do not fill a
// group for another worker.
func IdleText(idle []gpu.Device, group int) string {
	names := make([]string, len(idle))
	for i, d := range idle {
		names[i] = d.String()
	}
	verb := "stay"
	if len(idle) == 1 {
		verb = "stays"
	}
	return fmt.Sprintf("%s %s idle, since each worker takes %d", gpu.Enumerate(names), verb, group)
}

// keepClaimed returns the devices that no slot uses.
func (p *prepared) keepClaimed() {
	if p.claim != nil {
		p.claim.Keep(p.slotDevices())
	}
}
