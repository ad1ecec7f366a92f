package gpu

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Glance is a snapshot of one GPU or MIG instance, for display.
type Glance struct {
	Device
	// State is OPTIMAL, NORMAL, THROTTLED, CRITICAL, or UNAVAILABLE for a device that
	// does not answer. It is the current state: a Monitor's state falls more slowly.
	State string `json:"state"`
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

// Look returns a snapshot of every GPU of the machine, regardless of
// CUDA_VISIBLE_DEVICES; for a GPU in MIG mode, of its instances. On a machine without
// a driver there are none, and Note says so. Errors are those of Discover.
func Look(ctx context.Context, opts Options) (Sight, error) {
	opts = opts.withDefaults()
	m, err := opts.scan(ctx)
	if errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrNotBuilt) {
		_, err = withoutNVML(Selection{}, opts, err)
		return Sight{GPUs: []Glance{}, Note: "no NVIDIA driver"}, err
	}
	if err != nil {
		return Sight{GPUs: []Glance{}}, err
	}
	seen := m.shown()
	readings := sampleThose(ctx, opts, seen)
	sight := Sight{GPUs: []Glance{}, DriverVersion: m.driver}
	var split []candidate
	for i, c := range seen {
		sight.GPUs = append(sight.GPUs, glanceAt(c, readings[i]))
		if errors.Is(c.unusable, errNoInstance) {
			split = append(split, c)
		}
	}
	sight.Note = strings.Join(whyUnusable(split), "; ")
	return sight, nil
}

// sampleThose takes a sample of each usable device.
func sampleThose(ctx context.Context, opts Options, seen []candidate) []reading {
	var devices []Device
	var places []int
	for i, c := range seen {
		if c.unusable == nil {
			c.PCIOrder = true // its index is NVML's, in case it does not report its UUID
			devices, places = append(devices, c.Device), append(places, i)
		}
	}
	sampler := newSampler(opts.NVML, devices, realClock{})
	defer sampler.close()
	readings := make([]reading, len(seen))
	for i, r := range sampler.sample(ctx, min(opts.Timeout, lookTimeout), staleTime) {
		readings[places[i]] = r
	}
	return readings
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

func glanceAt(c candidate, r reading) Glance {
	glance := Glance{Device: c.Device, MemoryUsed: c.Memory - min(c.Memory, c.MemoryFree)}
	switch {
	case c.unusable != nil:
		glance.Lost, glance.MemoryFree = c.unusable.Error(), 0
	case errors.Is(r.err, ErrLost): // lost since the inventory
		glance.Lost = r.err.Error()
	case r.err != nil && !errors.Is(r.err, errSenseless):
		glance.Problem = r.err.Error()
	default:
		glance.Sample = r.sample
		if m, known := r.sample.Memory.Get(); known && glance.Memory > 0 {
			glance.MemoryUsed, glance.MemoryReserved = m.Used, m.Reserved
		}
		if err := unreadable(r.sample, false); err != nil {
			glance.Problem = err.Error()
		}
	}
	glance.Judge(0)
	return glance
}

// MemoryOf queries only the current memory of only these devices, so that a driver that
// hangs on a temperature does not delay it. Values that cannot be read are unknown. It
// reports a driver that does not answer to Options.Slow.
func MemoryOf(ctx context.Context, devices []Device, opts Options) []Optional[Memory] {
	opts = opts.withDefaults()
	sampler := newMemorySampler(opts.NVML, devices, realClock{})
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

// Judge sets State by the default thresholds of a Monitor. own is how many bytes of
// the memory in use belong to gpurun's own jobs: they do not count.
func (g *Glance) Judge(own uint64) {
	c := DefaultConfig()
	state := Optimal
	if celsius, known := g.Sample.Temperature.Get(); known {
		heat, _ := c.heat(g.Sample.Slowdown)
		state = heat.of(float64(celsius))
	}
	if g.Memory > 0 {
		others := g.MemoryUsed - min(g.MemoryUsed, own)
		state = max(state, c.memory().of(100*float64(others)/float64(g.Memory)))
	}
	if g.Lost != "" || g.Problem != "" && state < Throttled {
		state = Unavailable
	}
	g.State = state.String()
}
