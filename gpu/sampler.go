package gpu

import (
	"context"
	"errors"
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
	errHangs     = errors.New("the NVIDIA driver does not answer")
	errUnknown   = errors.New("it cannot be matched to one of the driver's GPUs")
	errSenseless = errors.New("the driver reports no sensor values for it")
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
