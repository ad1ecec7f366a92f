package gpu

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// Registry counts the workers on each device: a device has a capacity, in worker slots,
// and a number of slots taken. It is safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	entries []*entry
}

type entry struct {
	device   Device
	name     string
	original int // capacity before any failure
	capacity int
	active   int
	leaving  int // workers that yielded their slot and have not exited yet
	exits    int // of workers, so far
}

// load is the fraction of slots taken.
func (e *entry) load() float64 { return float64(e.active) / float64(e.capacity) }

// NewRegistry returns a Registry with a capacity of at least 1 for each device.
func NewRegistry(devices []Device, capacity func(Device) int) *Registry {
	r := &Registry{}
	for _, d := range devices {
		slots := max(1, capacity(d))
		r.entries = append(r.entries, &entry{device: d, name: d.String(), original: slots, capacity: slots})
	}
	return r
}

// AutoCapacity is the number of workers per GPU if the user leaves it to gpurun: as many
// as keep the CPUs busy, ceil(cpus / gpus), but no more than fit into the usable memory.
// A worker of unknown size (each = 0) is not limited by memory.
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

// UsableMemory is how much of a device's memory all jobs together may use, by
// MemoryLimit and MemoryReserve; 0 if the device's memory is unknown.
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

// NoSlotError means that no slot is free.
type NoSlotError struct {
	// Active of Capacity slots are taken on GPUs devices, of which Failed have failed.
	Active, Capacity, GPUs, Failed int
}

// Error gives the figures.
func (e *NoSlotError) Error() string {
	text := fmt.Sprintf("no free slot: %d of %d are taken on %d devices", e.Active, e.Capacity, e.GPUs)
	if e.Failed > 0 {
		text += fmt.Sprintf(", %d of which have failed", e.Failed)
	}
	return text
}

// Acquire takes a slot of the least loaded device, on a tie of the one with the most
// free memory; if names are given, only among those. It fails with a *NoSlotError if no
// slot is free, and with a fault.Usage for an unknown name.
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
	return nil, fault.UnknownDevice.New("unknown device %q", name)
}

// Release releases a slot. It fails with a fault.Usage if the device is unknown or none
// of its slots is taken.
func (r *Registry) Release(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil {
		return err
	}
	if e.active == 0 {
		return fault.BadLease.New("%s has no slot to release", name)
	}
	e.active--
	e.exits++
	return nil
}

// Yield releases a slot if more slots of its device are taken than exist, and reports
// whether it did: the worker that had the slot must exit, and Exited be called then.
func (r *Registry) Yield(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil || e.capacity == 0 || e.active <= e.capacity {
		return false
	}
	e.active--
	e.leaving++
	return true
}

// Exited records that a worker that yielded its slot has exited.
func (r *Registry) Exited(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, err := r.find(name); err == nil && e.leaving > 0 {
		e.leaving--
		e.exits++
	}
}

// Exits returns how many workers of a device have exited so far.
func (r *Registry) Exits(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, err := r.find(name); err == nil {
		return e.exits
	}
	return 0
}

// Fail removes all slots of a device, including those taken, and returns how many were
// taken.
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

// Recover restores the slots of a failed device if the probe passes. It does not probe a
// device that has not failed.
func (r *Registry) Recover(name string, probe func(Device) error) error {
	r.mu.Lock()
	e, err := r.find(name)
	if err != nil || e.capacity > 0 {
		r.mu.Unlock()
		return err
	}
	r.mu.Unlock() // a probe may be slow
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

// LowerForOOM removes one slot from a device that ran out of memory while several
// workers shared it, and reports whether it did. It never goes below one slot, and does
// nothing while a worker still has to exit because of an earlier call, or if one has exited
// since the computation began, when there were this many Exits: it may fit now.
func (r *Registry) LowerForOOM(name string, exits int) (capacity int, lowered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(name)
	if err != nil {
		return 0, false
	}
	if e.capacity <= 1 || e.active > e.capacity || e.leaving > 0 || e.exits != exits {
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

// GPUFigures are the counts of one device.
type GPUFigures struct {
	Active             int     `json:"active"`
	Capacity           int     `json:"capacity"`
	UtilizationPercent float64 `json:"utilization_percent"`
}

// Status returns a copy of the counts, by device name.
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
