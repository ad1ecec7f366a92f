package gpu

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// Registry counts who is at work on which device: each has a capacity, in slots
// for workers, and a number of slots that are taken. It is safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	entries []*entry
}

type entry struct {
	device   Device
	name     string
	original int // capacity, when all is well
	capacity int
	active   int
}

// load is the share of the slots that is taken.
func (e *entry) load() float64 { return float64(e.active) / float64(e.capacity) }

// NewRegistry returns one with a capacity, of at least 1, for each device.
func NewRegistry(devices []Device, capacity func(Device) int) *Registry {
	r := &Registry{}
	for _, d := range devices {
		slots := max(1, capacity(d))
		r.entries = append(r.entries, &entry{device: d, name: d.String(), original: slots, capacity: slots})
	}
	return r
}

// AutoCapacity is the number of workers for each of some GPUs where the user leaves
// it to gpurun: as many as keep the CPUs busy, ceil(cpus / gpus), as far as each
// fits the memory that may be used. A worker whose needs are not known (each = 0)
// is not limited by them.
func AutoCapacity(cpus, gpus int, memory, each uint64) int {
	slots := 1
	if gpus > 0 {
		slots = max(1, (cpus+gpus-1)/gpus)
	}
	if each > 0 && memory > 0 {
		slots = max(1, min(slots, int(min(memory/each, 1<<20))))
	}
	return slots
}

// UsableMemory is how much of a device's memory jobs may use together, by
// MemoryLimit and MemoryReserve; 0 if the device's memory is not known.
func (c Config) UsableMemory(total uint64) uint64 {
	if total == 0 {
		return 0
	}
	usable := total - min(total, uint64(c.MemoryReserve)<<20)
	if limit := uint64(c.MemoryLimit) << 20; limit > 0 {
		usable = min(usable, limit)
	}
	return max(usable, 1)
}

// NoSlotError says that nothing is free.
type NoSlotError struct {
	// Active of Capacity slots are taken, on GPUs devices of which Failed have
	// failed.
	Active, Capacity, GPUs, Failed int
}

// Error says so in a sentence.
func (e *NoSlotError) Error() string {
	text := fmt.Sprintf("no slot is free: %d of %d are taken on %d devices", e.Active, e.Capacity, e.GPUs)
	if e.Failed > 0 {
		text += fmt.Sprintf(", %d of which have failed", e.Failed)
	}
	return text
}

// Acquire takes a slot of the least loaded device, on a tie of the one with most
// free memory; among those names, if there are any. It fails with a *NoSlotError
// if nothing is free, and with a fault.Usage for a name that it does not know.
func (r *Registry) Acquire(names ...string) (Device, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if _, err := r.find(name); err != nil {
			return Device{}, err
		}
	}
	var best *entry
	for _, e := range r.entries {
		if e.active >= e.capacity || len(names) > 0 && !slices.Contains(names, e.name) {
			continue
		}
		if best == nil || e.load() < best.load() || e.load() == best.load() && e.device.MemoryFree > best.device.MemoryFree {
			best = e
		}
	}
	if best == nil {
		return Device{}, r.full()
	}
	best.active++
	return best.device, nil
}

func (r *Registry) full() *NoSlotError {
	e := &NoSlotError{GPUs: len(r.entries)}
	for _, one := range r.entries {
		e.Active += one.active
		e.Capacity += one.capacity
		if one.capacity == 0 {
			e.Failed++
		}
	}
	return e
}

func (r *Registry) find(name string) (*entry, error) {
	for _, e := range r.entries {
		if e.name == name {
			return e, nil
		}
	}
	return nil, fault.New(fault.Usage, "there is no device %q", name)
}

// Release gives a slot back. It is an error, of kind fault.Usage, if the device is
// not known or no slot of it is taken.
func (r *Registry) Release(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil {
		return err
	}
	if e.active == 0 {
		return fault.New(fault.Usage, "%s has no slot to give back", name)
	}
	e.active--
	return nil
}

// Yield gives a slot back if more of its device are taken than there are, and
// reports whether it did: the worker that had it is to end.
func (r *Registry) Yield(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil || e.capacity == 0 || e.active <= e.capacity {
		return false
	}
	e.active--
	return true
}

// Fail takes a device out: it has no slots any more, and those that were taken are
// gone. It returns their number.
func (r *Registry) Fail(name string) (released int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil {
		return 0
	}
	released = e.active
	e.capacity, e.active = 0, 0
	return released
}

// Recover gives a device that failed its slots back if the probe passes. One that
// has not failed is not probed.
func (r *Registry) Recover(name string, probe func(Device) error) error {
	r.mu.Lock()
	e, err := r.find(name)
	if err != nil || e.capacity > 0 {
		r.mu.Unlock()
		return err
	}
	r.mu.Unlock() // a probe takes its time
	if err := probe(e.device); err != nil {
		return fmt.Errorf("%s has not recovered: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.capacity == 0 {
		e.capacity = e.original
	}
	return nil
}

// LowerForOOM takes one slot away from a device whose memory several workers share
// and that has run out of it, and reports whether it did: never below one, and not
// while somebody is still to leave by an earlier one.
func (r *Registry) LowerForOOM(name string) (capacity int, lowered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil {
		return 0, false
	}
	if e.capacity <= 1 || e.active > e.capacity {
		return e.capacity, false
	}
	e.capacity--
	return e.capacity, true
}

// Shared reports whether more than one slot of a device is taken.
func (r *Registry) Shared(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	return err == nil && e.active > 1
}

// Figures are a Registry's counts.
type Figures struct {
	TotalGPUs          int                   `json:"total_gpus"`
	TotalCapacity      int                   `json:"total_capacity"`
	TotalActive        int                   `json:"total_active"`
	UtilizationPercent float64               `json:"utilization_percent"`
	PerGPU             map[string]GPUFigures `json:"per_gpu"`
}

// GPUFigures are those of one device.
type GPUFigures struct {
	Active             int     `json:"active"`
	Capacity           int     `json:"capacity"`
	UtilizationPercent float64 `json:"utilization_percent"`
}

// Status returns the counts, by the devices' names. It is a copy.
func (r *Registry) Status() Figures {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := Figures{TotalGPUs: len(r.entries), PerGPU: make(map[string]GPUFigures, len(r.entries))}
	for _, e := range r.entries {
		f.TotalCapacity += e.capacity
		f.TotalActive += e.active
		f.PerGPU[e.name] = GPUFigures{e.active, e.capacity, percentOf(e.active, e.capacity)}
	}
	f.UtilizationPercent = percentOf(f.TotalActive, f.TotalCapacity)
	return f
}

func percentOf(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
