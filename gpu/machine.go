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

// candidate is a GPU that is there, or should be.
type candidate struct {
	Device
	gone error // why it cannot be used; nil: it can
}

// complete says that every GPU of the machine answered. If one did not, nobody
// can tell whether CUDA counts it, and so what an index means.
func (m machine) complete() bool {
	for _, g := range m.gpus {
		if g.gone != nil {
			return false
		}
	}
	return true
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
		device, gone := s.describe(i)
		m.gpus = append(m.gpus, candidate{device, gone})
	}
	return m, nil
}

// describe returns what GPU i tells of itself. A field it does not support
// stays zero; a GPU that is lost on the way is gone as a whole.
func (s *scanner) describe(i int) (d Device, gone error) {
	d = Device{Kind: GPU, Index: i, Name: unknownName}
	h, err := s.api.Device(i)
	if err != nil {
		return d, err
	}
	note := func(err error) bool {
		if errors.Is(err, ErrLost) {
			gone = err
		}
		return err == nil
	}
	if uuid, err := h.UUID(); note(err) {
		d.UUID = uuid
	}
	if name, err := h.Name(); note(err) && name != "" {
		d.Name = name
	}
	if total, free, err := h.Memory(); note(err) {
		d.Memory, d.MemoryFree = total, free
	}
	if id, err := h.PCIBusID(); note(err) {
		d.PCIBusID = id
	}
	if cpus, err := h.CPUs(); note(err) && len(cpus) > 0 {
		d.CPUs = cpus
	}
	return d, gone
}

// unknownName stands for the model of a GPU that did not tell it.
const unknownName = "NVIDIA GPU"
