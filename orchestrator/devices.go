package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// findDevices selects the job's devices. If there are none, it asks the kernel whether it needs
// one.
func (p *prepared) findDevices(ctx context.Context) error {
	err := p.selectDevices(ctx)
	if err != nil && p.needsNoDevice(ctx, err) {
		p.useNoDevice()
		return nil
	}
	return err
}

func (p *prepared) selectDevices(ctx context.Context) (err error) {
	if p.selection, err = gpu.ParseSelection(p.config.Devices.GPUs); err != nil {
		return p.gpusError(err)
	}
	options := p.config.devices
	options.Slow = p.notice
	options.PinUUID = p.config.Devices.PinUUID
	inventory, err := gpu.Select(ctx, p.selection, options)
	if err != nil {
		return p.gpusError(err)
	}
	if inventory.Note != "" {
		p.deviceNote = inventory.Note
		p.plan.Notes = append(p.plan.Notes, inventory.Note)
	}
	return p.useDevices(p.withoutSick(inventory.Devices))
}

// withoutSick leaves out devices on which records of the job failed that succeed on others, as
// long as others are left.
func (p *prepared) withoutSick(devices []gpu.Device) (kept []gpu.Device) {
	var notes []string
	for _, d := range devices {
		i := slices.IndexFunc(p.config.sick, func(s SickDevice) bool { return s.UUID != "" && s.UUID == d.UUID })
		if i < 0 {
			kept = append(kept, d)
			continue
		}
		notes = append(notes, fmt.Sprintf("not using %s: records of this job failed on it, but not on other devices: %s", d, p.config.sick[i].Message))
	}
	if len(kept) == 0 {
		return devices
	}
	p.plan.Notes = append(p.plan.Notes, notes...)
	return kept
}

// needsNoDevice reports whether the kernel can do without the device that was not found.
func (p *prepared) needsNoDevice(ctx context.Context, err error) bool {
	return fault.KindOf(err) == fault.NoDevice && p.askKernel(ctx) == nil && p.plan.Info.NoDevice
}

// useNoDevice gives the job one worker, for a kernel that uses no device.
func (p *prepared) useNoDevice() {
	p.config.Devices.GPUs, p.config.Devices.GPUsPerWorker, p.config.Devices.WorkersPerGPU = "cpu:1", 1, 1
	p.selection, _ = gpu.ParseSelection(p.config.Devices.GPUs) // it is valid
	p.idle = nil
	p.plan.Slots = makeSlots([][]gpu.Device{{{Kind: gpu.CPU, Name: "CPU"}}}, 1, p.config.cores(), true)
	p.dropDeviceNote()
}

// dropDeviceNote removes what the plan says about the devices: the job uses none.
func (p *prepared) dropDeviceNote() {
	p.plan.Notes = slices.DeleteFunc(p.plan.Notes, func(note string) bool { return note == p.deviceNote })
}

// gpusError adds the setting's name to a usage error; other errors concern the machine.
func (p *prepared) gpusError(err error) error {
	if fault.KindOf(err) != fault.Usage {
		return err
	}
	return fault.New(fault.Usage, "devices %s: %w", p.config.Devices.GPUs, err).Set("gpus")
}

// makeSlots returns slots for a number of workers on each group of devices. If gpurun chooses
// how many there are, the first is named like its device.
func makeSlots(groups [][]gpu.Device, workers, cores int, auto bool) []Slot {
	var slots []Slot
	threads := max(1, cores/(len(groups)*workers))
	for round := range workers {
		for _, group := range groups {
			name := group[0].String()
			for _, more := range group[1:] {
				name += "+" + strings.TrimPrefix(more.String(), "GPU ")
			}
			if workers > 1 && (round > 0 || !auto) {
				name = fmt.Sprintf("%s #%d", name, round+1)
			}
			slots = append(slots, Slot{
				Number: len(slots), Name: name, Devices: group,
				Pin: gpu.PinEnv(group), Threads: threads, rank: round,
			})
		}
	}
	return slots
}
