package view

import (
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// maxPoints is how many points a history has at most; with more, every other one is
// dropped and the interval doubles.
const maxPoints = 600

// rateTime is how far back a current rate looks.
const rateTime = 30 * time.Second

// point is the state at one moment. Counts are cumulative, so that dropping points loses
// no records.
type point struct {
	time         time.Time
	done, failed int64
	devices      []devicePoint
}

type devicePoint struct {
	records int64
	pace    float64
	sample  sampled
}

// sampled is what a chart shows of a sample.
type sampled struct {
	temperature gpu.Optional[int]
	utilization gpu.Optional[int]
	memory      gpu.Optional[gpu.Memory]
	power       gpu.Optional[gpu.Watt]
}

// history keeps points at growing intervals.
type history struct {
	interval time.Duration
	points   []point
}

// due reports whether the next point is due.
func (h *history) due(now time.Time) bool {
	n := len(h.points)
	return n == 0 || now.Sub(h.points[n-1].time) >= max(h.interval, time.Second)
}

func (h *history) add(p point) {
	if len(h.points) >= maxPoints {
		kept := h.points[:0]
		for i := 0; i < len(h.points); i += 2 {
			kept = append(kept, h.points[i])
		}
		clear(h.points[len(kept):])
		h.points = kept
		h.interval = 2 * max(h.interval, time.Second)
	}
	h.points = append(h.points, p)
}

// since returns the oldest point that is not older than rateTime, or the last one before.
func (h *history) since(now time.Time) (point, bool) {
	for i := len(h.points) - 1; i >= 0; i-- {
		if i == 0 || now.Sub(h.points[i-1].time) > rateTime {
			return h.points[i], true
		}
	}
	return point{}, false
}

// History is the course of a job in columns, one entry per point of time, oldest first. A
// value that was unknown is null.
type History struct {
	Interval float64   `json:"interval_seconds"`
	Time     []float64 `json:"time"` // Unix seconds
	Done     []int64   `json:"done"`
	Failed   []int64   `json:"failed"`
	// Rate is in records per second since the point before.
	Rate    []float64       `json:"records_per_second"`
	Devices []DeviceHistory `json:"devices"`
}

// DeviceHistory is the course of one device.
type DeviceHistory struct {
	Device      string     `json:"device"`
	Rate        []float64  `json:"records_per_second"`
	Pace        []float64  `json:"pace"`
	Temperature []*int     `json:"temperature_c"`
	Utilization []*int     `json:"utilization_percent"`
	Memory      []*uint64  `json:"memory_used_bytes"`
	Power       []*float64 `json:"power_w"`
}

// show returns the columns.
func (h *history) show(devices []string) History {
	shown := History{
		Interval: max(h.interval, time.Second).Seconds(), Devices: make([]DeviceHistory, len(devices)),
		Time: []float64{}, Done: []int64{}, Failed: []int64{}, Rate: []float64{},
	}
	for i, name := range devices {
		shown.Devices[i] = newDeviceHistory(name)
	}
	for i, p := range h.points {
		before := h.points[max(0, i-1)]
		elapsed := p.time.Sub(before.time)
		shown.Time = append(shown.Time, float64(p.time.UnixMilli())/1000)
		shown.Done = append(shown.Done, p.done)
		shown.Failed = append(shown.Failed, p.failed)
		shown.Rate = append(shown.Rate, rate(p.done-before.done, elapsed))
		for d := range shown.Devices {
			var now, earlier devicePoint
			if d < len(p.devices) {
				now, earlier = p.devices[d], p.devices[d]
			}
			if d < len(before.devices) {
				earlier = before.devices[d]
			}
			shown.Devices[d].add(now, rate(now.records-earlier.records, elapsed))
		}
	}
	return shown
}

func newDeviceHistory(name string) DeviceHistory {
	return DeviceHistory{
		Device: name, Rate: []float64{}, Pace: []float64{}, Temperature: []*int{}, Utilization: []*int{},
		Memory: []*uint64{}, Power: []*float64{},
	}
}

func (d *DeviceHistory) add(p devicePoint, rate float64) {
	d.Rate = append(d.Rate, rate)
	d.Pace = append(d.Pace, p.pace)
	d.Temperature = append(d.Temperature, known(p.sample.temperature))
	d.Utilization = append(d.Utilization, known(p.sample.utilization))
	var used *uint64
	if m, ok := p.sample.memory.Get(); ok {
		used = &m.Used
	}
	d.Memory = append(d.Memory, used)
	var watt *float64
	if w, ok := p.sample.power.Get(); ok {
		number := float64(w)
		watt = &number
	}
	d.Power = append(d.Power, watt)
}

func known(o gpu.Optional[int]) *int {
	if value, ok := o.Get(); ok {
		return &value
	}
	return nil
}

// rate is never negative: a chunk may be started again after its worker was lost.
func rate(records int64, d time.Duration) float64 {
	if d <= 0 || records <= 0 {
		return 0
	}
	return float64(records) / d.Seconds()
}
