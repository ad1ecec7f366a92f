package view

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// maxPoints is how many points a history has at most; with more, every other one is
// dropped and the interval doubles.
const maxPoints = 600

// point is the state at one moment, in memory as in the file. Counts are cumulative, so that
// dropping points loses no records.
type point struct {
	Time    int64     `json:"t"`             // Unix milliseconds
	Gap     bool      `json:"gap,omitempty"` // no run of the job was there to count
	Done    int64     `json:"done"`
	Failed  int64     `json:"failed,omitempty"`
	Devices []figures `json:"devices,omitempty"` // as in history.names
}

// figures are the records, pace, temperature, utilization, used memory and power of a device; nil
// where unknown.
type figures [6]*float64

func (p point) at() time.Time { return time.UnixMilli(p.Time) }

// device returns the figures of a device; none if it was not there.
func (p point) device(i int) (f figures) {
	if i < len(p.Devices) {
		f = p.Devices[i]
	}
	return f
}

func figuresOf(d Device) figures {
	f := figures{new(float64(d.Records)), &d.Pace, Number(d.Temperature), Number(d.Utilization), nil, Number(d.Power)}
	if m, ok := d.Memory.Get(); ok {
		f[4] = new(float64(m.Used))
	}
	return f
}

// Number returns a figure; nil if it is unknown.
func Number[T ~int | ~uint64 | ~float64](o gpu.Optional[T]) *float64 {
	value, ok := o.Get()
	if !ok {
		return nil
	}
	return new(float64(value))
}

// history keeps points at growing intervals, also from earlier runs.
type history struct {
	interval time.Duration
	names    []string // of devices, in the order in which they appeared
	points   []point
}

// index returns the place of a device in points.
func (h *history) index(device string) int {
	i := slices.Index(h.names, device)
	if i < 0 {
		i = len(h.names)
		h.names = append(h.names, device)
	}
	return i
}

// interrupt ends the points of an earlier run.
func (h *history) interrupt() {
	if n := len(h.points); n > 0 && !h.points[n-1].Gap {
		h.points = append(h.points, point{Time: h.points[n-1].Time + 1, Gap: true})
	}
}

// due reports whether the next point is due.
func (h *history) due(now time.Time) bool {
	n := len(h.points)
	return n == 0 || now.Sub(h.points[n-1].at()) >= max(h.interval, time.Second)
}

// add adds a point; if there are too many, it thins out the others.
func (h *history) add(p point) {
	if len(h.points) >= maxPoints {
		kept := h.points[:0]
		for i, p := range h.points {
			if i%2 == 0 || p.Gap {
				kept = append(kept, p)
			}
		}
		clear(h.points[len(kept):])
		h.points = kept
		h.interval = 2 * max(h.interval, time.Second)
	}
	h.points = append(h.points, p)
}

// rate is never negative: a chunk may be started again after its worker was lost.
func rate(records int64, d time.Duration) float64 {
	if d <= 0 || records <= 0 {
		return 0
	}
	return float64(records) / d.Seconds()
}
