package gpu

import (
	"context"
	"errors"
)

// Glance is one GPU at one moment, for a person who looks. A field that the card or
// the driver does not support is nil: never 0.
type Glance struct {
	Device
	// State is a word for how it is: OPTIMAL, NORMAL, THROTTLED, CRITICAL, or
	// UNAVAILABLE for one that does not answer.
	State string `json:"state"`
	// Lost says why it does not answer.
	Lost string `json:"lost,omitempty"`
	// MemoryUsed is in bytes; meaningful where Memory is known.
	MemoryUsed uint64 `json:"memory_used_bytes"`
	Gauges
}

// Gauges are what a card measures of itself.
type Gauges struct {
	Load        *int     `json:"load_percent,omitempty"`
	Temperature *int     `json:"temperature_celsius,omitempty"`
	Power       *float64 `json:"power_watts,omitempty"`
	PowerLimit  *float64 `json:"power_limit_watts,omitempty"`
	// Processes are those that compute on it, as far as the driver shows them: of
	// another PID namespace, none or others' numbers.
	Processes []Process `json:"processes,omitempty"`
}

// Process uses memory of a GPU.
type Process struct {
	PID int `json:"pid"`
	// Memory is in bytes, 0 where the driver does not tell.
	Memory uint64 `json:"memory_bytes,omitempty"`
}

// Gauger is what an API may offer beside: a look at the gauges of one GPU. The
// rules of API hold.
type Gauger interface {
	Gauges(Handle) Gauges
}

// Sight is a machine at one moment.
type Sight struct {
	GPUs          []Glance `json:"gpus"`
	DriverVersion string   `json:"driver_version,omitempty"`
	// Note says why there are none, where that is no error.
	Note string `json:"note,omitempty"`
}

// Look returns how every GPU of the machine is at this moment, whatever
// CUDA_VISIBLE_DEVICES hides. On a machine without a driver there is none, and
// Note says so. Errors are those of Discover.
func Look(ctx context.Context, opts Options) (Sight, error) {
	opts = opts.withDefaults()
	looking := &gauging{API: opts.NVML}
	m, err := scan(ctx, looking, opts.Timeout)
	if errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrNotBuilt) {
		_, err = withoutNVML(Selection{}, opts, err)
		return Sight{Note: "no NVIDIA driver"}, err
	}
	sight := Sight{DriverVersion: m.driver}
	for _, g := range m.gpus {
		sight.GPUs = append(sight.GPUs, glanceAt(g, looking.gauges[g.Index]))
	}
	return sight, err
}

func glanceAt(g candidate, gauges Gauges) Glance {
	glance := Glance{Device: g.Device, Gauges: gauges, MemoryUsed: g.Memory - min(g.Memory, g.MemoryFree)}
	glance.State = glance.state()
	if g.gone != nil {
		glance.State, glance.Lost = "UNAVAILABLE", g.gone.Error()
	}
	return glance
}

// state goes by the temperature and the memory alone, by the thresholds of a card
// that tells none of its own.
func (g Glance) state() string {
	memory, temperature := 0.0, 0
	if g.Memory > 0 {
		memory = 100 * float64(g.MemoryUsed) / float64(g.Memory)
	}
	if g.Temperature != nil {
		temperature = *g.Temperature
	}
	switch {
	case temperature >= 85 || memory >= 95:
		return "CRITICAL"
	case temperature >= 75 || memory >= 85:
		return "THROTTLED"
	case temperature >= 65 || memory >= 70:
		return "NORMAL"
	}
	return "OPTIMAL"
}

// gauging is an API that reads the gauges of every GPU it hands out, on the thread
// of its caller and within the caller's deadline.
type gauging struct {
	API
	gauges map[int]Gauges
}

func (g *gauging) Device(index int) (Handle, error) {
	handle, err := g.API.Device(index)
	if source, ok := g.API.(Gauger); ok && err == nil {
		if g.gauges == nil {
			g.gauges = make(map[int]Gauges)
		}
		g.gauges[index] = source.Gauges(handle)
	}
	return handle, err
}
