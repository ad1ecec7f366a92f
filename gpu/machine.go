package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
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

// scan asks api for everything, on one thread, and gives up after the timeout.
// A thread that hangs in the driver is left behind: nothing can end it but the
// driver. Should it come back, it makes no further call but Shutdown.
//
// Errors: ErrNoLibrary and ErrNotBuilt as they are, else classified.
func scan(parent context.Context, api API, timeout time.Duration) (machine, error) {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	type result struct {
		machine machine
		err     error
	}
	s := &scanner{api: api}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		m, err := s.run(ctx)
		done <- result{m, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = errGivenUp
	}
	switch {
	case r.err == nil, errors.Is(r.err, ErrNoLibrary), errors.Is(r.err, ErrNotBuilt):
		return r.machine, r.err
	case errors.Is(r.err, errGivenUp) && parent.Err() != nil:
		return machine{}, fault.New(fault.Canceled, "look for GPUs: %w", context.Cause(parent))
	case errors.Is(r.err, errGivenUp):
		return machine{}, fault.New(fault.NoDevice,
			"the NVIDIA driver did not answer within %v (%s): it hangs; see dmesg and nvidia-smi; %s", timeout, s.step(), cpuHint)
	default:
		return machine{}, fault.New(fault.NoDevice, "the NVIDIA driver does not work: %s: %w; %s", s.step(), r.err, cpuHint)
	}
}

// errGivenUp: nobody waits for the answer any more.
var errGivenUp = errors.New("given up")

// scanner is one pass over the machine.
type scanner struct {
	api API
	at  atomic.Pointer[string] // read by the caller while run hangs
}

func (s *scanner) enter(step string) { s.at.Store(&step) }

func (s *scanner) step() string {
	if step := s.at.Load(); step != nil {
		return *step
	}
	return "start"
}

func (s *scanner) run(ctx context.Context) (m machine, err error) {
	s.enter("initialise NVML")
	if err := s.api.Init(); err != nil {
		return machine{}, err // and not a single call more
	}
	// What Shutdown says changes nothing: all there is to know is known.
	defer func() { _ = s.api.Shutdown() }()
	if ctx.Err() != nil {
		return machine{}, errGivenUp
	}
	s.enter("ask for the driver's version")
	m.driver, _ = s.api.DriverVersion()
	s.enter("count the GPUs")
	count, err := s.api.Count()
	if err != nil {
		return machine{}, err
	}
	for i := range count {
		if ctx.Err() != nil {
			return machine{}, errGivenUp
		}
		s.enter(fmt.Sprintf("ask GPU %d", i))
		m.gpus = append(m.gpus, s.describe(i))
	}
	return m, nil
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
