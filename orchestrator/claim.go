package orchestrator

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// useDevices builds slots from devices. If the user named no GPUs, those that do not
// fill a group stay idle, and the plan reports them.
func (s *staff) useDevices(devices []gpu.Device) error {
	s.idle = nil
	if rest := len(devices) % s.config.Devices.GPUsPerWorker; s.selection.IsAll() && len(devices) > rest {
		devices, s.idle = devices[:len(devices)-rest], devices[len(devices)-rest:]
	}
	groups, err := gpu.Group(devices, s.config.Devices.GPUsPerWorker)
	if err != nil {
		return err
	}
	s.plan.Slots = makeSlots(groups, s.workersPerGPU(groups), s.config.cores(), s.config.Devices.WorkersPerGPU == AutoWorkers)
	return nil
}

// staff is who may compute a job: devices, and the slots on them in the plan.
type staff struct {
	*emitter
	config     *order
	plan       *Plan
	selection  gpu.Selection
	deviceNote string        // what the plan says about the devices, empty for nothing
	idle       []gpu.Device  // selected or claimed, but not filling a group
	reserve    []Slot        // slots that the plan allows beyond those that start
	claim      *Claim        // nil without Config.Devices.Claim
	registry   *gpu.Registry // of the slots' devices; every slot of the plan is acquired
	// resumed is how many workers an earlier run found to be best.
	resumed map[string]scaler.Saved
}

// release gives the devices back.
func (s *staff) release() {
	if s.claim != nil {
		s.claim.Release()
	}
}

// claimDevices claims as many devices as there is work for. It may wait for another user's job
// to end. changed: others than were planned for have been claimed.
func (s *staff) claimDevices(ctx context.Context, slots int, preview bool) (changed bool, err error) {
	// Slots are spread over all devices before any gets a second.
	most := min(slots*s.config.Devices.GPUsPerWorker, len(s.slotDevices()))
	if s.config.Devices.Claim == nil || most == 0 {
		return false, nil
	}
	s.claim, err = s.config.Devices.Claim(ctx, ClaimRequest{
		Devices: s.candidates(), Named: !s.selection.IsAll(), Most: most, PerWorker: s.config.Devices.GPUsPerWorker, Preview: preview, Notice: s.notice, Alarm: s.alarm,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return false, fault.Interrupted.New("stopped before anything was started")
	case err != nil:
		return false, err
	}
	s.plan.Notes = append(s.plan.Notes, s.claim.Notes...)
	if slices.EqualFunc(s.claim.Devices, s.slotDevices(), sameDevice) {
		s.idle = nil // the claim left them out, and reports it
		return false, nil
	}
	return true, s.useDevices(s.claim.Devices)
}

func sameDevice(a, b gpu.Device) bool { return a.String() == b.String() }

// candidates returns the devices that suit the kernel: those of the slots, and those
// that are idle only because they do not fill a group.
func (s *staff) candidates() []gpu.Device { return append(s.slotDevices(), s.idle...) }

// slotDevices returns the distinct devices of the slots.
func (s *staff) slotDevices() (devices []gpu.Device) {
	for _, slot := range s.plan.Slots {
		for _, d := range slot.Devices {
			if !slices.ContainsFunc(devices, func(other gpu.Device) bool { return sameDevice(d, other) }) {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// noteIdle reports the GPUs that do not fill a group.
func (s *staff) noteIdle() {
	if len(s.idle) > 0 {
		all := len(s.slotDevices()) + len(s.idle)
		s.plan.Notes = append(s.plan.Notes, fmt.Sprintf("using %d of %d GPUs: %s",
			all-len(s.idle), all, IdleText(s.idle, s.config.Devices.GPUsPerWorker)))
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

// settle decides which slots start, given how many there is work for.
func (s *staff) settle(useful int) {
	s.noteIdle()
	s.keepSlots(useful)
	if len(s.plan.Slots) == 0 || s.plan.Info.NoDevice {
		s.dropDeviceNote()
	}
	s.reserveSlots()
	if s.claim != nil {
		s.claim.Keep(s.slotDevices())
	}
}
