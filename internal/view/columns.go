package view

import (
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// History is the course of a job in columns, one entry per point of time, oldest first. A
// value that was unknown is null; between two runs of the job, all are.
type History struct {
	Interval float64   `json:"interval_seconds"`
	Time     []float64 `json:"time"` // Unix seconds
	Done     []*int64  `json:"done"`
	Failed   []*int64  `json:"failed"`
	// Rate is in records per second since the point before, or those of the last 5 s.
	Rate    []*float64      `json:"records_per_second"`
	Devices []DeviceHistory `json:"devices"`
}

// DeviceHistory is the course of one device.
type DeviceHistory struct {
	Device      string     `json:"device"`
	Rate        []*float64 `json:"records_per_second"`
	Pace        []*float64 `json:"pace"`
	Temperature []*int     `json:"temperature_c"`
	Utilization []*int     `json:"utilization_percent"`
	Memory      []*uint64  `json:"memory_used_bytes"`
	Power       []*float64 `json:"power_w"`
}

// show returns the columns.
func (h *history) show() History {
	shown := History{
		Interval: max(h.interval, time.Second).Seconds(), Devices: make([]DeviceHistory, len(h.names)),
		Time: []float64{}, Done: []*int64{}, Failed: []*int64{}, Rate: []*float64{},
	}
	for i, name := range h.names {
		shown.Devices[i] = newDeviceHistory(name)
	}
	for i, p := range h.points {
		shown.Time = append(shown.Time, float64(p.time.UnixMilli())/1000)
		if p.gap {
			shown.addGap()
			continue
		}
		before := h.earlier(i)
		elapsed := p.time.Sub(before.time)
		shown.Done = append(shown.Done, &p.done)
		shown.Failed = append(shown.Failed, &p.failed)
		shown.Rate = append(shown.Rate, pointer(rate(p.done-before.done, elapsed)))
		for d := range shown.Devices {
			if d >= len(p.devices) {
				shown.Devices[d].add(devicePoint{}, nil)
				continue
			}
			earlier := p.devices[d]
			if d < len(before.devices) {
				earlier = before.devices[d]
			}
			shown.Devices[d].add(p.devices[d], pointer(rate(p.devices[d].records-earlier.records, elapsed)))
		}
	}
	return shown
}

// smoothTime is what a rate looks back at least: results come in batches.
const smoothTime = 5 * time.Second

// earlier returns the point that a rate at i is measured from.
func (h *history) earlier(i int) point {
	first := i
	for first > 0 && !h.points[first-1].gap && h.points[i].time.Sub(h.points[first].time) < smoothTime {
		first--
	}
	return h.points[first]
}

// before returns the point before the one at i, or that one if it is the first of its run.
func (h *history) before(i int) point {
	if i == 0 || h.points[i-1].gap {
		return h.points[i]
	}
	return h.points[i-1]
}

func (h *History) addGap() {
	h.Done, h.Failed, h.Rate = append(h.Done, nil), append(h.Failed, nil), append(h.Rate, nil)
	for i := range h.Devices {
		h.Devices[i].add(devicePoint{}, nil)
	}
}

func newDeviceHistory(name string) DeviceHistory {
	return DeviceHistory{
		Device: name, Rate: []*float64{}, Pace: []*float64{}, Temperature: []*int{}, Utilization: []*int{},
		Memory: []*uint64{}, Power: []*float64{},
	}
}

// add adds a point; without a rate, the device was not there.
func (d *DeviceHistory) add(p devicePoint, rate *float64) {
	d.Rate = append(d.Rate, rate)
	var pace *float64
	if rate != nil {
		pace = &p.pace
	}
	d.Pace = append(d.Pace, pace)
	d.Temperature = append(d.Temperature, known(p.sample.temperature))
	d.Utilization = append(d.Utilization, known(p.sample.utilization))
	var used *uint64
	if m, ok := p.sample.memory.Get(); ok {
		used = &m.Used
	}
	d.Memory = append(d.Memory, used)
	var watt *float64
	if w, ok := p.sample.power.Get(); ok {
		watt = pointer(float64(w))
	}
	d.Power = append(d.Power, watt)
}

func known(o gpu.Optional[int]) *int {
	if value, ok := o.Get(); ok {
		return &value
	}
	return nil
}

func pointer[T any](value T) *T { return &value }
