package gpu

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// sampler asks the driver how devices are doing. All calls are made on one thread
// of its own. A call that hangs is waited for until a deadline and then left alone:
// no other is made before it returns, and its answer is taken when it comes.
type sampler struct {
	api      API
	devices  []Device
	requests chan struct{}
	answers  chan []reading
	ended    chan struct{}
	closing  sync.Once
	pending  bool // an answer is owed; only sample looks at it
}

// reading is what was found of one device, or why nothing was.
type reading struct {
	sample Sample
	err    error
}

var (
	errHangs     = errors.New("the NVIDIA driver does not answer")
	errUnknown   = errors.New("it is not known which GPU of the driver it is")
	errSenseless = errors.New("the driver does not tell how it is doing")
)

func newSampler(api API, devices []Device) *sampler {
	s := &sampler{
		api: api, devices: devices,
		requests: make(chan struct{}), answers: make(chan []reading, 1), ended: make(chan struct{}),
	}
	go s.run()
	return s
}

// sample returns a reading for each device, in order. With an error nothing is
// known of any: the driver hangs, or ctx ended.
func (s *sampler) sample(ctx context.Context, timeout time.Duration) ([]reading, error) {
	if !s.pending {
		s.requests <- struct{}{}
		s.pending = true
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case answer := <-s.answers:
		s.pending = false
		return answer, nil
	case <-timer.C:
		return nil, errHangs
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends the thread; one that hangs in the driver is left behind.
func (s *sampler) close() {
	s.closing.Do(func() { close(s.requests) })
	select {
	case <-s.ended:
	case <-time.After(leaveTime):
	}
}

// run is the thread. A driver that was not there, or did not work, is tried again
// with the next request; so is a device that was lost, since a reset may bring it
// back under another handle.
func (s *sampler) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.ended)
	up := false
	found := make([]sensed, len(s.devices))
	for range s.requests {
		if !up {
			if err := s.api.Init(); err != nil {
				s.answers <- s.failed(err) // and not a single call more
				continue
			}
			up = true
		}
		s.answers <- s.read(found)
	}
	if up {
		_ = s.api.Shutdown()
	}
}

// failed is the answer when nothing can be asked.
func (s *sampler) failed(err error) []reading {
	answer := make([]reading, len(s.devices))
	for i := range answer {
		answer[i].err = err
	}
	return answer
}

// read asks every device, after it looked for those that it has no handle of.
func (s *sampler) read(found []sensed) []reading {
	s.find(found)
	answer := make([]reading, len(s.devices))
	for i := range answer {
		answer[i] = found[i].read()
		if answer[i].err != nil {
			found[i] = sensed{}
		}
	}
	return answer
}

// sensed is where the values of a device come from.
type sensed struct {
	device Sensors
	parent Sensors // of a MIG instance
	err    error   // why there is no device
}

// find fills in what is missing.
func (s *sampler) find(found []sensed) {
	for i := range found {
		if found[i].device == nil {
			s.findAll(found)
			return
		}
	}
}

func (s *sampler) findAll(found []sensed) {
	for i := range found {
		if found[i].device == nil {
			found[i].err = errUnknown
		}
	}
	count, err := s.api.Count()
	for index := range count {
		if err != nil {
			return
		}
		handle, err := s.api.Device(index)
		if err != nil {
			s.lost(found, index, err)
			continue
		}
		uuid, _ := handle.UUID()
		for i, d := range s.devices {
			if found[i].device == nil && d.isOn(index, uuid) {
				found[i] = sensorsOf(d, handle)
			}
		}
	}
}

// lost notes why a GPU without a handle cannot be asked. Its UUID cannot be told
// any more: its index, as far as that is the driver's, must do.
func (s *sampler) lost(found []sensed, index int, err error) {
	for i, d := range s.devices {
		if d.Parent != nil {
			d.Index = d.Parent.Index
		}
		if found[i].device == nil && d.Index == index && (d.PCIOrder || d.UUID != "") {
			found[i].err = err
		}
	}
}

// sensorsOf finds the sensors of a device on a GPU.
func sensorsOf(d Device, gpu Handle) sensed {
	own, _ := gpu.(Sensors)
	if own == nil {
		return sensed{err: errSenseless}
	}
	if d.Parent == nil {
		return sensed{device: own}
	}
	parts, _ := gpu.(Partitioned)
	if parts == nil {
		return sensed{err: errSenseless}
	}
	_, list, err := parts.Instances()
	if err != nil {
		return sensed{err: err}
	}
	for _, instance := range list {
		if uuid, err := instance.UUID(); err == nil && uuid == d.UUID {
			if sensors, ok := instance.Handle.(Sensors); ok {
				return sensed{device: sensors, parent: own}
			}
		}
	}
	return sensed{err: errors.New("the MIG instance is gone")}
}

// read takes a sample. Heat and power of a MIG instance are its parent's; its
// utilisation is nobody's: the parent does not tell it in MIG mode.
func (s sensed) read() reading {
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
