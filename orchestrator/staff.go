package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// staff is who may compute a job: devices, and the slots on them in the plan.
type staff struct {
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

// findDevices selects the job's devices. If there are none, it asks the kernel whether it needs
// one.
func (s *staff) findDevices(ctx context.Context, ask func(context.Context) error) error {
	err := s.selectDevices(ctx)
	switch e := fault.As(err); {
	case e == nil:
		return err
	case e.Kind == fault.NoDevice:
		if ask(ctx) == nil && s.plan.Info.NoDevice {
			s.useNoDevice()
			return nil
		}
	case e.Kind == fault.Usage && e.Code != fault.UnevenDevices: // other errors concern the machine
		return fault.UnknownDevice.New("devices %s: %w", s.config.Devices.GPUs, err).Set("gpus")
	}
	return err
}

func (s *staff) selectDevices(ctx context.Context) (err error) {
	if s.selection, err = gpu.ParseSelection(s.config.Devices.GPUs); err != nil {
		return err
	}
	options := s.config.Options.devices
	options.Slow, options.PinUUID = s.config.notice, s.config.Devices.PinUUID
	inventory, err := gpu.Select(ctx, s.selection, options)
	if err != nil {
		return err
	}
	if s.deviceNote = inventory.Note; s.deviceNote != "" {
		s.plan.note(s.deviceNote)
	}
	return s.useDevices(s.withoutSick(inventory.Devices))
}

// withoutSick leaves out devices on which records of the job failed that succeed on others, as
// long as others are left.
func (s *staff) withoutSick(devices []gpu.Device) []gpu.Device {
	var kept []gpu.Device
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
	s.plan.note(notes...)
	return kept
}

// useNoDevice gives the job one worker, for a kernel that uses no device.
func (s *staff) useNoDevice() {
	s.config.Spec = s.config.With(func(s *spec.Spec) {
		s.Devices.GPUs, s.Devices.GPUsPerWorker, s.Devices.WorkersPerGPU = "cpu:1", 1, 1
	})
	s.selection, _ = gpu.ParseSelection(s.config.Devices.GPUs) // it is valid
	s.idle, s.plan.Slots = nil, makeSlots([][]gpu.Device{{{Kind: gpu.CPU, Name: "CPU"}}}, 1, s.config.cores(), true)
	s.dropDeviceNote()
}

// dropDeviceNote removes what the plan says about the devices: the job uses none.
func (s *staff) dropDeviceNote() {
	s.plan.Notes = slices.DeleteFunc(s.plan.Notes, func(note string) bool { return note == s.deviceNote })
}

// useDevices builds slots from devices. If the user named no GPUs, those that do not
// fill a group stay idle, and the plan reports them.
func (s *staff) useDevices(devices []gpu.Device) error {
	each, auto := s.config.Devices.GPUsPerWorker, s.config.Devices.WorkersPerGPU == AutoWorkers
	s.idle = nil
	if full := len(devices) - len(devices)%each; s.selection.IsAll() && full > 0 {
		devices, s.idle = devices[:full], devices[full:]
	}
	groups, err := gpu.Group(devices, each)
	if err != nil {
		return err
	}
	workers := s.config.Devices.WorkersPerGPU
	switch { // as far as that is known before the kernel is asked
	case auto && len(groups) > 0 && groups[0][0].Kind == gpu.CPU:
		workers = 1 // their number already follows from the cores
	case auto:
		workers = gpu.AutoCapacity(s.config.cores(), len(groups))
	}
	s.plan.Slots = makeSlots(groups, workers, s.config.cores(), auto)
	return nil
}

// makeSlots returns slots for a number of workers on each group of devices. If gpurun chooses
// how many there are, the first is named like its device.
func makeSlots(groups [][]gpu.Device, workers, cores int, auto bool) (slots []Slot) {
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

// fitDevices keeps the slots that the kernel can use and reports why it cannot use the
// others.
func (s *staff) fitDevices() error {
	info := s.plan.Info
	var kept []Slot
	var left []string
	taken := make(map[string]uint64) // memory, by device
	for _, slot := range s.plan.Slots {
		if s.auto() && (info.MaxWorkers > 0 && sharers(kept, slot) >= info.MaxWorkers || s.exceedsHost(kept, slot)) {
			continue
		}
		device := slot.Device()
		if info.NeedsGPU && !device.GPU {
			return s.needsGPU(slot)
		}
		usable := s.usableMemory(slot)
		taken[slot.Key()] += info.MinMemory
		if device.GPU && usable > 0 && taken[slot.Key()] > usable {
			if !s.auto() || slot.Rank == 0 { // another would have been added only if it fits
				left = append(left, fmt.Sprintf("%s has %d MiB available", slot.Name, (usable-min(usable, taken[slot.Key()]-info.MinMemory))>>20))
			}
			continue
		}
		slot.Number = len(kept)
		kept = append(kept, slot)
	}
	if len(left) > 0 {
		why := fmt.Sprintf("kernel %s needs %d MiB of GPU memory; %s", s.plan.Kernel, info.MinMemory>>20, strings.Join(left, ", "))
		if len(kept) == 0 {
			return fault.SmallGPUs.New("%s", why)
		}
		if note := "not used: " + why; !slices.Contains(s.plan.Notes, note) { // an earlier claim may have noted it
			s.plan.note(note)
		}
	}
	s.plan.Slots = kept
	return nil
}

// auto reports whether gpurun chooses the number of workers. The user has chosen the number of
// CPU devices by naming them.
func (s *staff) auto() bool {
	return s.config.Devices.WorkersPerGPU == AutoWorkers && len(s.plan.Slots) > 0 && (!s.onCPU() || s.selection.IsAll())
}

// onCPU reports whether the slots are on CPU devices.
func (s *staff) onCPU() bool { return s.plan.Slots[0].Devices[0].Kind == gpu.CPU }

// leastHost is the host memory that each CPU worker needs at least.
const leastHost = 512 << 20

// exceedsHost reports whether the host has no memory for another CPU worker.
func (s *staff) exceedsHost(kept []Slot, slot Slot) bool {
	available := resources.System{}.Available()
	needed := max(leastHost, s.plan.Info.MinMemory)
	return slot.Devices[0].Kind == gpu.CPU && available > 0 && len(kept) > 0 && uint64(len(kept)+1)*needed > available
}

// sharers returns how many slots share a slot's device. All CPU devices are one machine.
func sharers(slots []Slot, slot Slot) (n int) {
	for _, other := range slots {
		if other.Key() == slot.Key() || slot.Devices[0].Kind == gpu.CPU {
			n++
		}
	}
	return n
}

// needsGPU is the fault of a slot without the GPU that the kernel needs.
func (s *staff) needsGPU(slot Slot) error {
	e := fault.NeedsGPU.New("kernel %s needs a GPU, but none is available (%s)", s.plan.Kernel, slot.Name)
	if strings.HasPrefix(s.config.Devices.GPUs, "cpu:") {
		return fault.New(e.Kind, "%w: select GPUs, not %s", e, s.config.Devices.GPUs).Set("gpus")
	}
	return fault.New(e.Kind, "%w: this machine has no NVIDIA driver (Debian: apt install nvidia-driver; Ubuntu: ubuntu-drivers install; a container: docker run --gpus all)", e)
}

// usableMemory returns how much memory the workers on a slot's devices may use
// together; 0 if unknown.
func (s *staff) usableMemory(slot Slot) (sum uint64) {
	for _, device := range slot.Devices {
		usable := s.config.Devices.Monitor.UsableMemory(device.Memory)
		if usable == 0 {
			return 0
		}
		sum += usable
	}
	return sum
}

// claimDevices claims as many devices as there is work for. It may wait for another user's job
// to end. If it gets others than were planned for, it calls fit.
func (s *staff) claimDevices(ctx context.Context, slots int, fit func() error) (err error) {
	// Slots are spread over all devices before any gets a second.
	devices, each := event.Devices(s.plan.Slots), s.config.Devices.GPUsPerWorker
	most := min(slots*each, len(devices))
	if s.config.Devices.Claim == nil || most == 0 {
		return nil
	}
	s.claim, err = s.config.Devices.Claim(ctx, ClaimRequest{
		// The devices that suit the kernel, also those that only do not fill a group.
		Devices: append(devices, s.idle...),
		Named:   !s.selection.IsAll(), Most: most, PerWorker: each, Preview: s.config.preview, Notice: s.config.notice, Alarm: s.config.alarm,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fault.Interrupted.New("stopped before anything was started")
	case err != nil:
		return err
	}
	s.plan.note(s.claim.Notes...)
	if slices.EqualFunc(s.claim.Devices, event.Devices(s.plan.Slots), gpu.Device.Is) {
		s.idle = nil // the claim left them out, and reports it
		return nil
	}
	if err := s.useDevices(s.claim.Devices); err != nil {
		return err
	}
	return fit()
}

// release gives the devices back.
func (s *staff) release() {
	if s.claim != nil {
		s.claim.Release()
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

// startSlots decides which slots start, given how many there is work for.
func (s *staff) startSlots(useful int) {
	if len(s.idle) > 0 {
		used := len(event.Devices(s.plan.Slots))
		s.plan.note(fmt.Sprintf("using %d of %d GPUs: %s", used, used+len(s.idle), IdleText(s.idle, s.config.Devices.GPUsPerWorker)))
	}
	s.keepSlots(useful)
	if len(s.plan.Slots) == 0 || s.plan.Info.NoDevice {
		s.dropDeviceNote()
	}
	s.reserveSlots()
	if s.claim != nil {
		s.claim.Keep(event.Devices(s.plan.Slots))
	}
}

// slotsOf counts the slots of each device.
func slotsOf(slots []Slot) map[string]int {
	n := make(map[string]int)
	for _, slot := range slots {
		n[slot.Key()]++
	}
	return n
}

// keepSlots reduces the slots to n: the least loaded devices keep theirs; ties go to
// those with the most free memory. It acquires the kept slots in the registry.
func (s *staff) keepSlots(n int) {
	capacity := slotsOf(s.plan.Slots)
	var leaders []gpu.Device
	for _, slot := range s.plan.Slots {
		if slot.Rank == 0 {
			leaders = append(leaders, slot.Devices[0])
		}
	}
	s.registry = gpu.NewRegistry(leaders, func(d gpu.Device) int { return capacity[d.String()] })
	chosen := make(map[string]int)
	for range min(n, len(s.plan.Slots)) {
		if device, ok := s.registry.Acquire(); ok {
			chosen[device.String()]++
		}
	}
	s.plan.Slots = slices.DeleteFunc(s.plan.Slots, func(slot Slot) bool {
		chosen[slot.Key()]--
		return chosen[slot.Key()] < 0
	})
	for i := range s.plan.Slots {
		s.plan.Slots[i].Number = i
	}
}

// PlannedScaling is how many workers a device starts with and how many it may get.
type PlannedScaling struct {
	Device  string `json:"device"`
	Workers int    `json:"workers"`
	Most    int    `json:"most"`
}

// reserveSlots keeps the slots with which the job starts and reserves the others: one for
// each GPU or, in a resumed job, as many as the last run found to be best. The input has
// been cut for all of them. CPU devices all start.
func (s *staff) reserveSlots() {
	if !s.auto() {
		return
	}
	most := slotsOf(s.plan.Slots)
	if s.onCPU() {
		for i := range s.plan.Slots { // a small job or the kernel may want fewer than cores
			s.plan.Slots[i].Threads = max(1, s.config.cores()/len(s.plan.Slots))
		}
		return
	}
	s.plan.Slots = slices.DeleteFunc(s.plan.Slots, func(slot Slot) bool {
		start := slot.Rank < max(1, s.resumed[slot.Key()].Workers)
		if !start {
			s.reserve = append(s.reserve, slot)
			s.registry.Release(slot.Key())
		}
		return !start
	})
	started := slotsOf(s.plan.Slots)
	for i := range s.plan.Slots {
		slot := &s.plan.Slots[i]
		key := slot.Key()
		slot.Number, slot.Added = i, slot.Rank > 0
		slot.Threads = max(1, s.config.cores()/(len(most)*started[key]))
		if slot.Rank == 0 {
			s.plan.Scaling = append(s.plan.Scaling, PlannedScaling{key, started[key], most[key]})
		}
	}
}
