package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// machine is what NVML reports about the whole machine, before any selection.
type machine struct {
	driver string
	mps    string      // see Device.MPS
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

// shown lists the devices to display: MIG instances in place of their GPU.
func (m machine) shown() []candidate {
	var all []candidate
	for _, g := range m.gpus {
		if len(g.instances) > 0 {
			all = append(all, g.instances...)
		} else {
			all = append(all, g)
		}
	}
	return all
}

// complete reports whether every GPU has answered.
func (m machine) complete() bool {
	return !slices.ContainsFunc(m.gpus, func(g candidate) bool { return errors.Is(g.unusable, errHangs) })
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
	if cpus, err := h.CPUs(); c.answered(err) && len(cpus) > 0 {
		c.CPUs = cpus
	}
	if id, err := h.PCIBusID(); c.answered(err) {
		c.PCIBusID = id
	}
	c.split(h)
	return c
}

// answered reports whether a query succeeded, and records that the GPU is lost.
func (c *candidate) answered(err error) bool {
	if errors.Is(err, ErrLost) {
		c.unusable = err
	}
	return err == nil
}

// ask fills in what GPUs and MIG instances have in common.
func (c *candidate) ask(h Handle) {
	if uuid, err := h.UUID(); c.answered(err) {
		c.UUID = uuid
	}
	if name, err := h.Name(); c.answered(err) && name != "" {
		c.Name = name
	}
	if memory, err := h.Memory(); c.answered(err) {
		m := memory.Or(Memory{})
		c.Memory, c.MemoryFree = m.Total, m.Free
	}
}

// split finds the MIG instances. It skips an instance that does not report its UUID,
// since CUDA cannot be pinned to it.
func (c *candidate) split(h Handle) {
	enabled, list, err := h.Instances()
	if !c.answered(err) || !enabled {
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

// errNoInstance means that there is nothing to compute on.
var errNoInstance = errors.New("in MIG mode without an instance")

// noInstanceRemedy is how to fix errNoInstance.
const noInstanceRemedy = "create instances (nvidia-smi mig -cgi PROFILE -C), or leave MIG mode (nvidia-smi -mig 0)"

// whyUnusable returns one message per reason why GPUs cannot be used, with the GPUs it
// applies to: "GPU 1 and GPU 3: the GPU is lost".
func whyUnusable(unusable []candidate) []string {
	var reasons []string
	names := make(map[string][]string)
	for _, g := range unusable {
		reason := g.unusable.Error()
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], g.String())
	}
	for i, reason := range reasons {
		list := names[reason]
		switch {
		case reason != errNoInstance.Error():
			reasons[i] = fmt.Sprintf("%s: %s", Enumerate(list), reason)
		case len(list) == 1:
			reasons[i] = fmt.Sprintf("%s is in MIG mode and has no instance: %s", list[0], noInstanceRemedy)
		default:
			reasons[i] = fmt.Sprintf("%s are in MIG mode and have no instance: %s", Enumerate(list), noInstanceRemedy)
		}
	}
	return reasons
}

// Enumerate joins a list for a sentence: "a, b and c".
func Enumerate(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}
