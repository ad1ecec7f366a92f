package gpu

import (
	"context"
	"errors"
	"time"
)

// Glance is one GPU, or one MIG instance, at one moment, for a person who looks.
type Glance struct {
	Device
	// State is a word for how it is: OPTIMAL, NORMAL, THROTTLED, CRITICAL, or
	// UNAVAILABLE for one that does not answer. It is that of the moment: a Monitor's
	// does not fall as soon.
	State string `json:"state"`
	// Lost says why it does not answer.
	Lost string `json:"lost,omitempty"`
	// MemoryUsed is in bytes; meaningful where Memory is known.
	MemoryUsed uint64 `json:"memory_used_bytes"`
	Sample     Sample `json:"sample"`
}

// Sight is a machine at one moment.
type Sight struct {
	GPUs          []Glance `json:"gpus"`
	DriverVersion string   `json:"driver_version,omitempty"`
	// Note says why there are none, where that is no error.
	Note string `json:"note,omitempty"`
}

// lookTimeout is how long a look waits for a driver that counts its GPUs but does not
// tell how they are.
const lookTimeout = 2 * time.Second

// Look returns how every GPU of the machine is at this moment, whatever
// CUDA_VISIBLE_DEVICES hides; of one in MIG mode, its instances. On a machine
// without a driver there is none, and Note says so. Errors are those of Discover.
func Look(ctx context.Context, opts Options) (Sight, error) {
	opts = opts.withDefaults()
	m, err := scan(ctx, opts.NVML, opts.Timeout)
	if errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrNotBuilt) {
		_, err = withoutNVML(Selection{}, opts, err)
		return Sight{Note: "no NVIDIA driver"}, err
	}
	if err != nil {
		return Sight{}, err
	}
	seen := m.shown()
	devices := make([]Device, len(seen))
	for i, c := range seen {
		devices[i] = c.Device
	}
	sampler := newSampler(opts.NVML, devices)
	defer sampler.close()
	readings, err := sampler.sample(ctx, min(opts.Timeout, lookTimeout))
	if err != nil { // who looks gets what there is
		readings = sampler.failed(err)
	}
	sight := Sight{DriverVersion: m.driver}
	for i, c := range seen {
		sight.GPUs = append(sight.GPUs, glanceAt(c, readings[i]))
	}
	return sight, nil
}

// shown is what a person sees of the machine: MIG instances in place of the GPU
// that they are parts of.
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
	glance := Glance{Device: c.Device, Sample: r.sample, MemoryUsed: c.Memory - min(c.Memory, c.MemoryFree)}
	glance.State = glance.state().String()
	gone := c.gone
	if gone == nil && errors.Is(r.err, ErrLost) { // between the two
		gone = r.err
	}
	if gone != nil {
		glance.State, glance.Lost = "UNAVAILABLE", gone.Error()
	}
	return glance
}

// state is by the thresholds of a Monitor without a configuration.
func (g Glance) state() State {
	c := DefaultConfig()
	state := Optimal
	if celsius, known := g.Sample.Temperature.Get(); known {
		heat, _ := c.heat(g.Sample.Slowdown)
		state = heat.of(float64(celsius))
	}
	if g.Memory > 0 {
		state = max(state, c.memory().of(100*float64(g.MemoryUsed)/float64(g.Memory)))
	}
	return state
}
