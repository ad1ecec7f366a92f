package gpu

import (
	"errors"
	"fmt"
)

// machine is what NVML tells about the whole machine, before any selection.
type machine struct {
	driver string
	gpus   []candidate // by NVML index
}

// candidate is a GPU, or a MIG instance, that is there or should be.
type candidate struct {
	Device
	gone error // why it cannot be used; nil: it can
	// mig says that the GPU is in MIG mode: it is used through its instances.
	mig       bool
	instances []candidate
	// alias is a MIG instance's name with drivers before 470:
	// MIG-GPU-<uuid>/<GPU instance>/<compute instance>.
	alias string
}

// countable says that an index in CUDA's PCI order is NVML's. With a GPU that
// does not answer, or one that CUDA shows as a MIG instance or not at all, nobody
// can tell how CUDA counts.
func (m machine) countable() bool { return m.uncountable() == "" }

// uncountable is why an index cannot be trusted; empty: it can.
func (m machine) uncountable() string {
	for _, g := range m.gpus {
		switch {
		case g.mig:
			return "a GPU of this machine is in MIG mode"
		case g.gone != nil:
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

// describe returns what GPU i tells of itself. A field it does not support
// stays zero; a GPU that is lost on the way is gone as a whole.
func (s *scanner) describe(i int) candidate {
	c := candidate{Device: Device{Kind: GPU, Index: i, Name: unknownName}}
	h, err := s.api.Device(i)
	if err != nil {
		c.gone = err
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

// note keeps the error of a GPU that is lost, and reports whether there is none.
func (c *candidate) note(err error) bool {
	if errors.Is(err, ErrLost) {
		c.gone = err
	}
	return err == nil
}

// ask fills in what GPUs and MIG instances have alike.
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

// split finds the MIG instances. One that does not tell its UUID cannot be named
// to CUDA, and is left out.
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
	if c.gone == nil && len(c.instances) == 0 {
		c.gone = errNoInstance
	}
}

// unknownName stands for the model of a GPU that did not tell it.
const unknownName = "NVIDIA GPU"
