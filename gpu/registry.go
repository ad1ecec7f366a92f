package gpu

import (
	"slices"
	"sync"
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
// as keep the CPUs busy, ceil(cpus / gpus). Their memory is looked at when the kernel is known.
func AutoCapacity(cpus, gpus int) int {
	if gpus == 0 {
		return 1
	}
	return max(1, (cpus+gpus-1)/gpus)
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

// Acquire takes a slot of the least loaded device, on a tie of the one with the most
// free memory; if names are given, only among those. It returns false if no slot is free.
func (r *Registry) Acquire(names ...string) (Device, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
		return Device{}, false
	}
	best.active++
	return best.device, true
}

// with calls use with the entry of a device; an unknown one has no slots.
func (r *Registry) with(name string, use func(*entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.name == name {
			use(e)
		}
	}
}

// Release releases a slot of a device, if one is taken.
func (r *Registry) Release(name string) {
	r.with(name, func(e *entry) {
		if e.active > 0 {
			e.active--
			e.exits++
		}
	})
}

// Yield releases a slot if more slots of its device are taken than exist, and reports
// whether it did: the worker that had the slot must exit, and Exited be called then.
func (r *Registry) Yield(name string) (yielded bool) {
	r.with(name, func(e *entry) {
		if yielded = e.capacity > 0 && e.active > e.capacity; yielded {
			e.active--
			e.leaving++
		}
	})
	return yielded
}

// Exited records that a worker that yielded its slot has exited.
func (r *Registry) Exited(name string) {
	r.with(name, func(e *entry) {
		e.leaving--
		e.exits++
	})
}

// Exits returns how many workers of a device have exited so far.
func (r *Registry) Exits(name string) (exits int) {
	r.with(name, func(e *entry) { exits = e.exits })
	return exits
}

// Fail removes all slots of a device, including those taken.
func (r *Registry) Fail(name string) {
	r.with(name, func(e *entry) { e.capacity, e.active = 0, 0 })
}

// Recover restores the slots of a failed device.
func (r *Registry) Recover(name string) {
	r.with(name, func(e *entry) {
		if e.capacity == 0 {
			e.capacity = e.original
		}
	})
}

// LowerForOOM removes one slot from a device that ran out of memory while several
// workers shared it, and reports whether it did. It never goes below one slot, and does
// nothing while a worker still has to exit because of an earlier call, or if one has exited
// since the computation began, when there were this many Exits: it may fit now.
func (r *Registry) LowerForOOM(name string, exits int) (capacity int, lowered bool) {
	r.with(name, func(e *entry) {
		if lowered = e.capacity > 1 && e.active <= e.capacity && e.leaving == 0 && e.exits == exits; lowered {
			e.capacity--
		}
		capacity = e.capacity
	})
	return capacity, lowered
}

// Shared reports whether more than one slot of a device is taken.
func (r *Registry) Shared(name string) (shared bool) {
	r.with(name, func(e *entry) { shared = e.active > 1 })
	return shared
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
