package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
)

// fitKernel matches the kernel's needs with the devices: it drops unsuitable devices
// and applies the kernel's batch size. The input is cut again if it was cut for other
// devices (recut) or if that turns out here.
func (p *prepared) fitKernel(recut bool) error {
	before := len(p.plan.Slots)
	if p.plan.Info.NoDevice {
		p.staff.useNoDevice()
	}
	if err := p.staff.fitDevices(); err != nil {
		return err
	}
	info := p.plan.Info
	recut = recut || len(p.plan.Slots) != before
	p.plan.BatchSize = p.config.Batching.Size
	if p.plan.BatchSize == 0 && info.BatchSize > 0 {
		p.plan.BatchSize, recut = info.BatchSize, true
	}
	if info.Concurrency > 0 {
		if err := p.fitConcurrency(); err != nil {
			return err
		}
		recut = true
	}
	setDefault(&p.plan.BatchSize, DefaultBatchSize)
	setDefault(&p.plan.Unit, "batches")
	setDefault(&p.plan.Flight, fmt.Sprintf("batches of %d", p.plan.BatchSize))
	if err := p.checkLimits(); err != nil {
		return err
	}
	if err := p.fitGroups(); err != nil {
		return err
	}
	p.plan.GrowBatch = info.GrowBatch && info.BatchSize == 0 && p.config.Batching.Size == 0 && !p.config.Batching.Auto && p.plan.GroupBy == ""
	if err := p.fitFetch(); err != nil {
		return err
	}
	if err := p.fitColumns(); err != nil {
		return err
	}
	if p.plan.GrowBatch {
		p.plan.Flight += " or more"
	}
	recut = recut || p.plan.GroupBy != "" || p.plan.GrowBatch
	if !recut || p.count == nil { // it is already cut, or it is cut when it is read
		return nil
	}
	var err error
	p.cut, err = p.count.Cut(p.chunks())
	return err
}

// fitColumns refuses columns that leave out a member that the job itself reads.
func (p *prepared) fitColumns() error {
	if len(p.config.Input.Columns) == 0 {
		return nil
	}
	read := make(map[string]bool)
	for _, column := range p.config.Input.Columns {
		name, _, _ := strings.Cut(column, ":")
		read[column], read[name] = true, true
	}
	for _, field := range p.fetchFields() {
		if !read[field] {
			return fault.NoSuchColumn.New("the columns to read lack %q, which names the files to fetch", field).Set("columns")
		}
	}
	if by := p.plan.GroupBy; by != "" && !read[by] {
		return fault.NoSuchColumn.New("the columns to read lack %q, by which records are grouped", by).Set("columns")
	}
	return nil
}

// fitDevices keeps the slots that the kernel can use and reports why it cannot use the
// others.
func (s *staff) fitDevices() error {
	info := s.plan.Info
	var kept []Slot
	var left []string
	taken := make(map[string]uint64) // memory, by device
	for _, slot := range s.plan.Slots {
		if s.auto() && (info.MaxWorkers > 0 && s.sharers(kept, slot) >= info.MaxWorkers || s.exceedsHost(kept, slot)) {
			continue
		}
		device := slot.Device()
		if info.NeedsGPU && !device.GPU {
			return s.needsGPU(slot)
		}
		usable := s.usableMemory(slot)
		taken[slot.Key()] += info.MinMemory
		if device.GPU && usable > 0 && taken[slot.Key()] > usable {
			if s.auto() && slot.Rank > 0 {
				continue // it would have been added only if it fits
			}
			left = append(left, fmt.Sprintf("%s has %d MiB available", slot.Name, (usable-min(usable, taken[slot.Key()]-info.MinMemory))>>20))
			continue
		}
		slot.Number = len(kept)
		kept = append(kept, slot)
	}
	if len(left) == 0 {
		s.plan.Slots = kept
		return nil
	}
	why := fmt.Sprintf("kernel %s needs %d MiB of GPU memory; %s", s.config.Kernel.Name, info.MinMemory>>20, strings.Join(left, ", "))
	if len(kept) == 0 {
		return fault.SmallGPUs.New("%s", why)
	}
	if note := "not used: " + why; !slices.Contains(s.plan.Notes, note) { // an earlier claim may have noted it
		s.plan.Notes = append(s.plan.Notes, note)
	}
	s.plan.Slots = kept
	return nil
}

// leastHost is the host memory that each CPU worker needs at least.
const leastHost = 512 << 20

// exceedsHost reports whether the host has no memory for another CPU worker.
func (s *staff) exceedsHost(kept []Slot, slot Slot) bool {
	available := resources.System{}.Available()
	needed := max(leastHost, s.plan.Info.MinMemory)
	return slot.Devices[0].Kind == gpu.CPU && available > 0 && len(kept) > 0 && uint64(len(kept)+1)*needed > available
}

// sharers returns how many slots share a slot's device. All CPU devices are one machine.
func (s *staff) sharers(slots []Slot, slot Slot) (n int) {
	for _, other := range slots {
		if other.Key() == slot.Key() || slot.Devices[0].Kind == gpu.CPU {
			n++
		}
	}
	return n
}

// needsGPU is the fault of a slot without the GPU that the kernel needs.
func (s *staff) needsGPU(slot Slot) error {
	e := fault.NeedsGPU.New("kernel %s needs a GPU, but none is available (%s)", s.config.Kernel.Name, slot.Name)
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

// workersPerGPU returns how many workers each group of devices gets, as far as that is
// known before the kernel is asked.
func (s *staff) workersPerGPU(groups [][]gpu.Device) int {
	if s.config.Devices.WorkersPerGPU != AutoWorkers {
		return s.config.Devices.WorkersPerGPU
	}
	if len(groups) > 0 && groups[0][0].Kind == gpu.CPU {
		return 1 // their number already follows from the cores
	}
	return gpu.AutoCapacity(s.config.cores(), len(groups), 0, 0)
}

// keepSlots reduces the slots to n: the least loaded devices keep theirs; ties go to
// those with the most free memory. It acquires the kept slots in the registry.
func (s *staff) keepSlots(n int) {
	capacity := make(map[string]int)
	var leaders []gpu.Device
	for _, slot := range s.plan.Slots {
		if capacity[slot.Key()]++; capacity[slot.Key()] == 1 {
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
