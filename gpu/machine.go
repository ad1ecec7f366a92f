package gpu

import (
	"errors"
	"fmt"
)

// machine is what NVML reports about the whole machine, before any selection.
type machine struct {
	driver string
	gpus   []candidate // by NVML index
}

// candidate is a GPU or MIG instance, usable or not.
type candidate struct {
	Device
	unusable error // why it cannot be used; nil if it can
	// mig means that the GPU is in MIG mode and is used through its instances.
	mig       bool
	instances []candidate
	// alias is a MIG instance's name with drivers before 470:
	// MIG-GPU-<uuid>/<GPU instance>/<compute instance>.
	alias string
}

// uncountable is why an index in CUDA's PCI order may not be NVML's; empty if it is. If a GPU
// does not answer, or CUDA shows it as a MIG instance or not at all, CUDA's numbering is
// unknown.
func (m machine) uncountable() string {
	for _, g := range m.gpus {
		switch {
		case g.mig:
			return "a GPU of this machine is in MIG mode"
		case g.unusable != nil:
			return "a GPU of this machine does not answer"
		}
	}
	return ""
}

// instances are the MIG instances of all GPUs.
func (m machine) instances() []candidate {
	var all []candidate
	for _, g := range m.gpus {
		all = append(all, g.instances...)
	}
	return all
}

// describe returns what GPU i reports. A field it does not support stays zero; a GPU
// that is lost meanwhile is unusable.
func (s *scanner) describe(i int) candidate {
	c := candidate{Device: Device{Kind: GPU, Index: i, Name: unknownName}}
	h, err := s.api.Device(i)
	if err != nil {
		c.unusable = err
		return c
	}
	c.ask(h)
	if cpus, err := h.CPUs(); c.note(err) && len(cpus) > 0 {
		c.CPUs = cpus
	}
	if id, err := h.PCIBusID(); c.note(err) {
		c.PCIBusID = id
	}
	if parts, ok := h.(Partitioned); ok {
		c.split(parts)
	}
	return c
}

// note records the error of a lost GPU, and reports whether err is nil.
func (c *candidate) note(err error) bool {
	if errors.Is(err, ErrLost) {
		c.unusable = err
	}
	return err == nil
}

// ask fills in what GPUs and MIG instances have in common.
func (c *candidate) ask(h Handle) {
	if uuid, err := h.UUID(); c.note(err) {
		c.UUID = uuid
	}
	if name, err := h.Name(); c.note(err) && name != "" {
		c.Name = name
	}
	if total, free, err := h.Memory(); c.note(err) {
		c.Memory, c.MemoryFree = total, free
	}
}

// split finds the MIG instances. It skips an instance that does not report its UUID,
// since CUDA cannot be pinned to it.
func (c *candidate) split(parts Partitioned) {
	enabled, list, err := parts.Instances()
	if !c.note(err) || !enabled {
		return
	}
	c.mig = true
	for _, instance := range list {
		one := candidate{Device: Device{
			Kind: GPU, Index: instance.Index, Name: c.Name + " MIG", PCIBusID: c.PCIBusID, CPUs: c.CPUs,
			Parent: &Parent{Index: c.Index, UUID: c.UUID},
		}}
		one.ask(instance.Handle)
		if one.UUID == "" {
			continue
		}
		one.Token = one.UUID
		one.alias = fmt.Sprintf("MIG-%s/%d/%d", c.UUID, instance.GPUInstance, instance.ComputeInstance)
		c.instances = append(c.instances, one)
	}
	if c.unusable == nil && len(c.instances) == 0 {
		c.unusable = errNoInstance
	}
}

// unknownName is the name of a GPU that does not report its model.
const unknownName = "NVIDIA GPU"
