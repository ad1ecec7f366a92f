package gpu

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// sampler queries the sensors of devices. Every device has its own thread (probe), so
// that a hung call costs no other device a sample. A hung thread is abandoned after a
// timeout: until it returns, no further call is made for its device, and no round waits
// for it.
type sampler struct {
	clock  Clock
	probes []*probe
}

// reading is the sample of one device, or why there is none.
type reading struct {
	sample Sample
	err    error
	began  time.Time // when it was requested
	// own is how much of the memory belongs to jobs; only an Observer knows.
	own Optional[uint64]
}

var (
	errHangs   = errors.New("the NVIDIA driver does not answer")
	errUnknown = errors.New("it cannot be matched to one of the driver's GPUs")
)

// newSampler returns a sampler that reads devices with read.
func newSampler(api API, devices []Device, clock Clock, read func(*sensed) reading) *sampler {
	s := &sampler{clock: clock}
	for _, d := range devices {
		p := &probe{
			api: api, device: d, clock: clock, read: read,
			requests: make(chan time.Time), answers: make(chan reading, 1), ended: make(chan struct{}),
		}
		s.probes = append(s.probes, p)
		go p.run()
	}
	return s
}

// sample returns a reading of each device, in order, within the timeout. A later answer
// is returned by the next call, unless it is older than stale.
func (s *sampler) sample(ctx context.Context, timeout, stale time.Duration) []reading {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all := make([]reading, len(s.probes))
	now := s.clock.Now()
	var asked []int
	for i, p := range s.probes {
		late, known := p.late(now, timeout, stale)
		if known {
			all[i] = late
			continue
		}
		p.ask(now)
		asked = append(asked, i)
	}
	for _, i := range asked {
		all[i] = s.probes[i].await(ctx)
	}
	return all
}

// close ends the threads; call it after the last sample. Threads that hang in the driver
// are abandoned.
func (s *sampler) close() {
	for _, p := range s.probes {
		p.closing.Do(func() { close(p.requests) })
	}
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	for _, p := range s.probes {
		if p.pending {
			continue
		}
		select {
		case <-p.ended:
		case <-timer.C:
			return
		}
	}
}

// probe is the thread of one device.
type probe struct {
	api      API
	device   Device
	clock    Clock
	read     func(*sensed) reading
	requests chan time.Time
	answers  chan reading
	ended    chan struct{}
	closing  sync.Once
	pending  bool // a request has no answer yet; used by sample and close
}

// await returns the answer, or errHangs if ctx ends first.
func (p *probe) await(ctx context.Context) reading {
	select {
	case r := <-p.answers:
		p.pending = false
		return r
	default:
	}
	select {
	case r := <-p.answers:
		p.pending = false
		return r
	case <-ctx.Done():
		return reading{err: errHangs}
	}
}

// ask requests a sample of the device.
func (p *probe) ask(now time.Time) {
	p.requests <- now
	p.pending = true
}

// late takes the answer to an earlier request; while there is none, the device hangs. It
// returns false if no request is pending or the answer is useless: the caller must then
// ask again. It asks a slow device ahead, so that the next round finds an answer.
func (p *probe) late(now time.Time, timeout, stale time.Duration) (reading, bool) {
	if !p.pending {
		return reading{}, false
	}
	select {
	case r := <-p.answers:
		p.pending = false
		if took := r.sample.Time.Sub(r.began); took <= timeout || now.Sub(r.began) > stale {
			return reading{}, false
		}
		p.ask(now)
		return r, true
	default:
		return reading{err: errHangs}, true
	}
}

// run is the probe's thread. It retries a missing or broken driver on the next request,
// and also a lost device, since a reset may bring it back under another handle.
func (p *probe) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	up := false
	var found sensed
	var heat thermometer
	for began := range p.requests {
		r := reading{}
		if !up {
			r.err = p.api.Init() // no further call after an error
			up = r.err == nil
		}
		if up {
			if found.device == nil {
				found = p.find()
			}
			if r = p.read(&found); r.err != nil {
				found = sensed{}
			}
		}
		r.began, r.sample.Time = began, p.clock.Now()
		heat.check(&r.sample, began) // a late answer may be an old value
		p.answers <- r
	}
	if up {
		_ = p.api.Shutdown()
	}
}

// sensed is the source of a device's values.
type sensed struct {
	device Handle
	parent Handle // of a MIG instance
	err    error  // why there is no device
}

// find looks for the device's GPU at the index where the inventory found it. It queries
// other GPUs only if it is not there, because one of them may hang.
func (p *probe) find() sensed {
	d := p.device
	if d.Kind != GPU || d.Parent == nil && isMIG(d.Token) {
		return sensed{err: errUnknown}
	}
	count, err := p.api.Count()
	if err != nil {
		return sensed{err: err}
	}
	home := d.home()
	result := sensed{err: errUnknown}
	if home < count {
		if result = p.at(home); result.device != nil || errors.Is(result.err, ErrLost) {
			return result
		}
	}
	for index := range count {
		if index == home {
			continue
		}
		if other := p.at(index); other.device != nil {
			return other
		}
	}
	return result
}

// at returns the device if it is, or is part of, the GPU at an index. If that GPU does
// not report its UUID, its error counts as the device's, provided the index identifies
// the device.
func (p *probe) at(index int) sensed {
	handle, err := p.api.Device(index)
	uuid := ""
	if err == nil {
		uuid, err = handle.UUID()
	}
	switch {
	case err != nil && !p.device.PCIOrder && p.device.UUID == "":
		return sensed{err: errUnknown}
	case err != nil && handle == nil:
		return sensed{err: err}
	case p.device.isOn(index, uuid):
		return p.device.sensors(handle)
	case err != nil:
		return sensed{err: err}
	}
	return sensed{err: errUnknown}
}

// sensors finds the sensors of the device on its GPU.
func (d Device) sensors(gpu Handle) sensed {
	if d.Parent == nil {
		return sensed{device: gpu}
	}
	_, list, err := gpu.Instances()
	if err != nil {
		return sensed{err: err}
	}
	for _, instance := range list {
		if uuid, err := instance.UUID(); err == nil && uuid == d.UUID {
			return sensed{device: instance.Handle, parent: gpu}
		}
	}
	return sensed{err: errors.New("the MIG instance no longer exists")}
}

// read takes a sample. A MIG instance has its parent's temperature and power. Its
// utilization is unknown: the parent does not report it in MIG mode.
func (s *sensed) read() reading {
	if s.device == nil {
		return reading{err: s.err}
	}
	var r reading
	if s.parent == nil {
		r.err = s.device.Sense(&r.sample)
		return r
	}
	var own Sample
	if r.err = s.parent.Sense(&r.sample); r.err == nil {
		r.err = s.device.Sense(&own)
	}
	r.sample.Memory, r.sample.Processes, r.sample.Utilization = own.Memory, own.Processes, own.Utilization
	return r
}

// readMemory queries only the memory.
func (s *sensed) readMemory() (r reading) {
	if s.device == nil {
		return reading{err: s.err}
	}
	r.sample.Memory, r.err = s.device.Memory()
	return r
}
