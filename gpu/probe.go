package gpu

import (
	"errors"
	"runtime"
)

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
	device Sensors
	parent Sensors // of a MIG instance
	err    error   // why there is no device
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
		return sensorsOf(p.device, handle)
	case err != nil:
		return sensed{err: err}
	}
	return sensed{err: errUnknown}
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
	r.sample.Memory, r.err = s.device.SenseMemory()
	return r
}
