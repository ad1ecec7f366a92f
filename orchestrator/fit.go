package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input"
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
		p.useNoDevice()
	}
	if err := p.fitDevices(); err != nil {
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
	recut = recut || p.plan.GroupBy != "" || p.plan.GrowBatch
	if !recut || p.earlier != nil { // it is already cut
		return nil
	}
	planner, ok := p.source.(input.Planner)
	if !ok { // a stream is not cut yet
		return nil
	}
	if err := planner.Recut(p.chunks()); err != nil {
		return err
	}
	p.cut = planner.Cut()
	return nil
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
			return fault.New(fault.Usage, "the columns to read lack %q, which names the files to fetch", field).Set("columns")
		}
	}
	if by := p.plan.GroupBy; by != "" && !read[by] {
		return fault.New(fault.Usage, "the columns to read lack %q, by which records are grouped", by).Set("columns")
	}
	return nil
}

// fitDevices keeps the slots that the kernel can use and reports why it cannot use the
// others.
func (p *prepared) fitDevices() error {
	info := p.plan.Info
	var kept []Slot
	var left []string
	taken := make(map[string]uint64) // memory, by device
	for _, slot := range p.plan.Slots {
		if p.auto() && (info.MaxWorkers > 0 && p.sharers(kept, slot) >= info.MaxWorkers || p.exceedsHost(kept, slot)) {
			continue
		}
		device := slot.device()
		if info.NeedsGPU && !device.GPU {
			return p.needsGPU(slot)
		}
		usable := p.usableMemory(slot)
		taken[slot.key()] += info.MinMemory
		if device.GPU && usable > 0 && taken[slot.key()] > usable {
			if p.auto() && slot.rank > 0 {
				continue // it would have been added only if it fits
			}
			left = append(left, fmt.Sprintf("%s has %d MiB available", slot.Name, (usable-min(usable, taken[slot.key()]-info.MinMemory))>>20))
			continue
		}
		slot.Number = len(kept)
		kept = append(kept, slot)
	}
	if len(left) == 0 {
		p.plan.Slots = kept
		return nil
	}
	why := fmt.Sprintf("kernel %s needs %d MiB of GPU memory; %s", p.config.Kernel.Name, info.MinMemory>>20, strings.Join(left, ", "))
	if len(kept) == 0 {
		return fault.New(fault.Incompatible, "%s", why).WithCode(fault.SmallGPUs, "")
	}
	if note := "not used: " + why; !slices.Contains(p.plan.Notes, note) { // an earlier claim may have noted it
		p.plan.Notes = append(p.plan.Notes, note)
	}
	p.plan.Slots = kept
	return nil
}

// leastHost is the host memory that each CPU worker needs at least.
const leastHost = 512 << 20

// exceedsHost reports whether the host has no memory for another CPU worker.
func (p *prepared) exceedsHost(kept []Slot, slot Slot) bool {
	available := resources.System{}.Available()
	needed := max(leastHost, p.plan.Info.MinMemory)
	return slot.Devices[0].Kind == gpu.CPU && available > 0 && len(kept) > 0 && uint64(len(kept)+1)*needed > available
}

// sharers returns how many slots share a slot's device. All CPU devices are one machine.
func (p *prepared) sharers(slots []Slot, slot Slot) (n int) {
	for _, other := range slots {
		if other.key() == slot.key() || slot.Devices[0].Kind == gpu.CPU {
			n++
		}
	}
	return n
}

// needsGPU is the fault of a slot without the GPU that the kernel needs.
func (p *prepared) needsGPU(slot Slot) error {
	e := fault.New(fault.Incompatible, "kernel %s needs a GPU, but none is available (%s)", p.config.Kernel.Name, slot.Name)
	if strings.HasPrefix(p.config.Devices.GPUs, "cpu:") {
		return fault.New(e.Kind, "%w: select GPUs, not %s", e, p.config.Devices.GPUs).Set("gpus")
	}
	return fault.New(e.Kind, "%w: this machine has no NVIDIA driver (Debian: apt install nvidia-driver; Ubuntu: ubuntu-drivers install; a container: docker run --gpus all)", e)
}

// usableMemory returns how much memory the workers on a slot's devices may use
// together; 0 if unknown.
func (p *prepared) usableMemory(slot Slot) (sum uint64) {
	for _, device := range slot.Devices {
		usable := p.config.Devices.Monitor.UsableMemory(device.Memory)
		if usable == 0 {
			return 0
		}
		sum += usable
	}
	return sum
}

// workersPerGPU returns how many workers each group of devices gets, as far as that is
// known before the kernel is asked.
func (p *prepared) workersPerGPU(groups [][]gpu.Device) int {
	if p.config.Devices.WorkersPerGPU != AutoWorkers {
		return p.config.Devices.WorkersPerGPU
	}
	if len(groups) > 0 && groups[0][0].Kind == gpu.CPU {
		return 1 // their number already follows from the cores
	}
	return gpu.AutoCapacity(p.config.cores(), len(groups), 0, 0)
}

// keepSlots reduces the slots to n: the least loaded devices keep theirs; ties go to
// those with the most free memory. It acquires the kept slots in the registry.
func (p *prepared) keepSlots(n int) {
	capacity := make(map[string]int)
	var leaders []gpu.Device
	for _, slot := range p.plan.Slots {
		if capacity[slot.key()]++; capacity[slot.key()] == 1 {
			leaders = append(leaders, slot.Devices[0])
		}
	}
	p.registry = gpu.NewRegistry(leaders, func(d gpu.Device) int { return capacity[d.String()] })
	chosen := make(map[string]int)
	for range min(n, len(p.plan.Slots)) {
		if device, err := p.registry.Acquire(); err == nil {
			chosen[device.String()]++
		}
	}
	p.plan.Slots = slices.DeleteFunc(p.plan.Slots, func(s Slot) bool {
		chosen[s.key()]--
		return chosen[s.key()] < 0
	})
	for i := range p.plan.Slots {
		p.plan.Slots[i].Number = i
	}
}
