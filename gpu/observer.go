package gpu

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Observer looks at all GPUs of a machine, again and again, and judges them as a Monitor
// judges the devices of a job: a hot GPU that can no longer be read does not become
// faster. Config and Configure are safe for concurrent use; only one goroutine may call
// Look and Close.
type Observer struct {
	options Options
	monitor *Monitor // watches the devices that the last Look found
	sampled []Device // the usable ones of them, which its sampler queries
}

// NewObserver returns an Observer with the default configuration. The caller must call
// Close.
func NewObserver(opts Options) *Observer {
	opts = opts.withDefaults()
	o := &Observer{options: opts}
	// Its configuration and profile are the default ones, so there is no error.
	o.monitor, _ = NewMonitor(nil, MonitorOptions{Options: opts, Timeout: min(opts.Timeout, lookTimeout)})
	return o
}

// Close releases the driver. It is safe to call Close more than once.
func (o *Observer) Close() { o.monitor.Close() }

// Config returns the configuration.
func (o *Observer) Config() Config { return o.monitor.Config() }

// Configure changes the configuration, as Monitor.Configure does.
func (o *Observer) Configure(changes map[string]any) error { return o.monitor.Configure(changes) }

// Look returns a snapshot of every GPU of the machine, regardless of
// CUDA_VISIBLE_DEVICES; for a GPU in MIG mode, of its instances. own returns how many
// bytes of the memory in use belong to gpurun's own jobs: they do not affect the state.
// Nil means none. On a machine without a driver there are no GPUs, and Note says so.
// Look returns the same errors as Discover.
func (o *Observer) Look(ctx context.Context, own func(Device, Sample) uint64) (Sight, error) {
	m, err := o.options.scan(ctx)
	if errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrNotBuilt) {
		_, err = withoutNVML(Selection{}, o.options, err)
		return Sight{GPUs: []Glance{}, Note: "no NVIDIA driver"}, err
	}
	if err != nil {
		return Sight{GPUs: []Glance{}}, err
	}
	seen := m.shown()
	o.follow(seen)
	readings := o.sample(ctx, seen)
	for i, r := range readings {
		readings[i].own = Some[uint64](0)
		if own != nil && r.err == nil {
			readings[i].own = Some(own(seen[i].Device, r.sample))
		}
	}
	o.monitor.apply(readings)
	sight := Sight{GPUs: []Glance{}, DriverVersion: m.driver}
	var split []candidate
	for i, h := range o.monitor.Status() {
		glance := glanceAt(seen[i], readings[i], h)
		glance.MPS = m.mps
		sight.GPUs = append(sight.GPUs, glance)
		if errors.Is(seen[i].unusable, errNoInstance) {
			split = append(split, seen[i])
		}
	}
	sight.Note = strings.Join(whyUnusable(split), "; ")
	return sight, nil
}

// follow makes these the monitor's devices. One that the last look saw keeps its state.
func (o *Observer) follow(seen []candidate) {
	o.monitor.mu.Lock()
	defer o.monitor.mu.Unlock()
	var usable []Device
	list := make([]*watched, len(seen))
	for i, c := range seen {
		list[i] = newWatched(c.Device)
		for _, before := range o.monitor.devices {
			if before.Device.same(c.Device) {
				list[i] = before
				before.Device = c.Device
			}
		}
		if c.unusable == nil {
			c.PCIOrder = true // its index is NVML's, in case it does not report its UUID
			usable = append(usable, c.Device)
		}
	}
	o.monitor.devices = list
	if !slices.EqualFunc(usable, o.sampled, func(a, b Device) bool { return a.Is(b) && a.UUID == b.UUID }) {
		o.monitor.sampler.close()
		o.monitor.sampler = newSampler(o.options.NVML, usable, o.monitor.options.Clock, (*sensed).read)
		o.sampled = usable
	}
}

// same reports whether both are one device of a machine, as far as they report their UUIDs.
func (d Device) same(other Device) bool {
	return d.Is(other) && (d.UUID == other.UUID || d.UUID == "" || other.UUID == "")
}

// sample takes a sample of each usable device.
func (o *Observer) sample(ctx context.Context, seen []candidate) []reading {
	usable := o.monitor.sample(ctx)
	readings := make([]reading, len(seen))
	for i, c := range seen {
		if readings[i].err = c.unusable; c.unusable == nil {
			readings[i], usable = usable[0], usable[1:]
		}
	}
	return readings
}
