package gpu

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Glance is one GPU, or one MIG instance, at one moment, for a person who looks.
type Glance struct {
	Device
	// State is a word for how it is: OPTIMAL, NORMAL, THROTTLED, CRITICAL, or
	// UNAVAILABLE for one that does not answer. It is that of the moment: a Monitor's
	// does not fall as soon.
	State string `json:"state"`
	// Lost says why it cannot be used, Problem why it is not known how it is doing.
	Lost    string `json:"lost,omitempty"`
	Problem string `json:"problem,omitempty"`
	// MemoryUsed is in bytes; meaningful where Memory is known. MemoryReserved is what
	// the driver keeps for itself, and nobody uses; 0 with drivers that count it as used.
	MemoryUsed     uint64 `json:"memory_used_bytes"`
	MemoryReserved uint64 `json:"memory_reserved_bytes"`
	Sample         Sample `json:"sample,omitzero"`
}

// Sight is a machine at one moment.
type Sight struct {
	GPUs          []Glance `json:"gpus"`
	DriverVersion string   `json:"driver_version,omitempty"`
	// Note says what is not as expected: why there is none, where that is no error, or
	// what keeps some from being used, and what to do about it.
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
		if errors.Is(c.gone, errNoInstance) {
			split = append(split, c)
		}
	}
	sight.Note = strings.Join(whyGone(split), "; ")
	return sight, nil
}

// sampleThose takes a sample of each that can be used: the others were asked in vain.
func sampleThose(ctx context.Context, opts Options, seen []candidate) []reading {
	var devices []Device
	var places []int
	for i, c := range seen {
		if c.gone == nil {
			c.PCIOrder = true // its index is the driver's, should it not tell its UUID
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
	glance := Glance{Device: c.Device, MemoryUsed: c.Memory - min(c.Memory, c.MemoryFree)}
	switch {
	case c.gone != nil:
		glance.Lost, glance.MemoryFree = c.gone.Error(), 0
	case errors.Is(r.err, ErrLost): // between the two
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

// MemoryOf asks for the memory of these devices at this moment, and of no other, and
// for nothing else: a driver that hangs in a temperature does not delay it. What cannot
// be found out is unknown; Options.Slow hears of a driver that does not answer.
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

// NoInstance reports whether the GPU is in MIG mode without an instance: it answers,
// and cannot be used.
func (g Glance) NoInstance() bool { return g.Lost == errNoInstance.Error() }

// Judge sets State by the thresholds of a Monitor without a configuration. Of the
// memory in use, own bytes are held by those who are meant to: they are no danger.
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
