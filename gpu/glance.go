package gpu

import (
	"context"
	"errors"
	"time"
)

// Glance is a snapshot of one GPU or MIG instance, for display.
type Glance struct {
	Device
	// State and Pace are what the Observer decided; Health explains them.
	State string  `json:"state"`
	Pace  float64 `json:"pace"`
	// Lost is why it cannot be used, Problem why its condition is unknown.
	Lost    string `json:"lost,omitempty"`
	Problem string `json:"problem,omitempty"`
	// MemoryUsed is in bytes and meaningful only if Memory is known. MemoryReserved is
	// what the driver keeps for itself; 0 with drivers that count it as used.
	MemoryUsed     uint64 `json:"memory_used_bytes"`
	MemoryReserved uint64 `json:"memory_reserved_bytes"`
	Sample         Sample `json:"sample,omitzero"`
}

// Sight is a snapshot of a machine.
type Sight struct {
	GPUs          []Glance `json:"gpus"`
	DriverVersion string   `json:"driver_version,omitempty"`
	// Note reports anything unexpected: why there are no GPUs, if that is not an error,
	// or why some cannot be used and what to do about it.
	Note string `json:"note,omitempty"`
}

// lookTimeout is how long Look waits for a driver that lists its GPUs but does not
// return samples.
const lookTimeout = 2 * time.Second

// Look returns a snapshot of the machine as it is now: see Observer.Look.
func Look(ctx context.Context, opts Options) (Sight, error) {
	o := NewObserver(opts)
	defer o.Close()
	return o.Look(ctx, nil)
}

// glanceAt is what is known about a device after a reading.
func glanceAt(c candidate, r reading, h Health) Glance {
	glance := Glance{Device: c.Device, State: h.State.String(), Pace: h.Pace, MemoryUsed: c.Memory - min(c.Memory, c.MemoryFree)}
	switch {
	case c.unusable != nil:
		glance.Lost, glance.MemoryFree = c.unusable.Error(), 0
	case errors.Is(r.err, ErrLost): // lost since the inventory
		glance.Lost = r.err.Error()
	default:
		glance.Problem = h.Problem
	}
	if r.err == nil {
		glance.Sample = r.sample
		if m, known := r.sample.Memory.Get(); known && glance.Memory > 0 {
			glance.MemoryUsed, glance.MemoryReserved = m.Used, m.Reserved
		}
	}
	return glance
}

// MemoryOf queries only the current memory of only these devices, so that a driver that
// hangs on a temperature does not delay it. Values that cannot be read are unknown. It
// reports a driver that does not answer to Options.Slow.
func MemoryOf(ctx context.Context, devices []Device, opts Options) []Optional[Memory] {
	opts = opts.withDefaults()
	sampler := newSampler(opts.NVML, devices, realClock{}, (*sensed).readMemory)
	defer sampler.close()
	all := make([]Optional[Memory], len(devices))
	var silent []string
	for i, r := range sampler.sample(ctx, min(opts.Timeout, lookTimeout), staleTime) {
		if r.err == nil {
			all[i] = r.sample.Memory
		}
		if errors.Is(r.err, errHangs) {
			silent = append(silent, devices[i].String())
		}
	}
	if len(silent) > 0 && opts.Slow != nil && ctx.Err() == nil {
		opts.Slow("the NVIDIA driver does not answer when asked for the memory of " + Enumerate(silent))
	}
	return all
}

// NoInstance reports whether the GPU is in MIG mode without an instance: it answers
// but cannot be used.
func (g Glance) NoInstance() bool { return g.Lost == errNoInstance.Error() }
