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
func (s *staff) findDevices(ctx context.Context, ask func(context.Context) error) error {
	err := s.selectDevices(ctx)
	if err != nil && fault.KindOf(err) == fault.NoDevice && ask(ctx) == nil && s.plan.Info.NoDevice {
		s.useNoDevice()
		return nil
	}
	return err
}

func (s *staff) selectDevices(ctx context.Context) (err error) {
	if s.selection, err = gpu.ParseSelection(s.config.Devices.GPUs); err != nil {
		return s.gpusError(err)
	}
	options := s.config.Options.devices
	options.Slow = s.notice
	options.PinUUID = s.config.Devices.PinUUID
	inventory, err := gpu.Select(ctx, s.selection, options)
	if err != nil {
		return s.gpusError(err)
	}
	if inventory.Note != "" {
		s.deviceNote = inventory.Note
		s.plan.Notes = append(s.plan.Notes, inventory.Note)
	}
	return s.useDevices(s.withoutSick(inventory.Devices))
}

// withoutSick leaves out devices on which records of the job failed that succeed on others, as
// long as others are left.
func (s *staff) withoutSick(devices []gpu.Device) (kept []gpu.Device) {
	var notes []string
	for _, d := range devices {
		i := slices.IndexFunc(s.config.sick, func(one SickDevice) bool { return one.UUID != "" && one.UUID == d.UUID })
		if i < 0 {
			kept = append(kept, d)
			continue
		}
		notes = append(notes, fmt.Sprintf("not using %s: records of this job failed on it, but not on other devices: %s", d, s.config.sick[i].Message))
	}
	if len(kept) == 0 {
		return devices
	}
	s.plan.Notes = append(s.plan.Notes, notes...)
	return kept
}

// useNoDevice gives the job one worker, for a kernel that uses no device.
func (s *staff) useNoDevice() {
	s.config.Spec = s.config.WithoutDevice()
	s.selection, _ = gpu.ParseSelection(s.config.Devices.GPUs) // it is valid
	s.idle = nil
	s.plan.Slots = makeSlots([][]gpu.Device{{{Kind: gpu.CPU, Name: "CPU"}}}, 1, s.config.cores(), true)
	s.dropDeviceNote()
}

// dropDeviceNote removes what the plan says about the devices: the job uses none.
func (s *staff) dropDeviceNote() {
	s.plan.Notes = slices.DeleteFunc(s.plan.Notes, func(note string) bool { return note == s.deviceNote })
}

// gpusError adds the setting's name to a usage error; other errors concern the machine.
func (s *staff) gpusError(err error) error {
	if fault.KindOf(err) != fault.Usage {
		return err
	}
	return fault.UnknownDevice.New("devices %s: %w", s.config.Devices.GPUs, err).Set("gpus")
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
				Pin: gpu.PinEnv(group), Threads: threads, Rank: round,
			})
		}
	}
	return slots
}
