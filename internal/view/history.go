package view

import (
	"slices"
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
	devices      []devicePoint // as in history.names
	gap          bool          // no run of the job was there to count
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

// history keeps points at growing intervals, also those of earlier runs.
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
	if n := len(h.points); n > 0 && !h.points[n-1].gap {
		h.points = append(h.points, point{time: h.points[n-1].time.Add(time.Millisecond), gap: true})
	}
}

// due reports whether the next point is due.
func (h *history) due(now time.Time) bool {
	n := len(h.points)
	return n == 0 || now.Sub(h.points[n-1].time) >= max(h.interval, time.Second)
}

// add adds a point and reports whether it has thinned out the others.
func (h *history) add(p point) (thinned bool) {
	if thinned = len(h.points) >= maxPoints; thinned {
		kept := h.points[:0]
		for i, p := range h.points {
			if i%2 == 0 || p.gap {
				kept = append(kept, p)
			}
		}
		clear(h.points[len(kept):])
		h.points = kept
		h.interval = 2 * max(h.interval, time.Second)
	}
	h.points = append(h.points, p)
	return thinned
}

// since returns the oldest point of this run that is not older than rateTime, or the last
// one before.
func (h *history) since(now time.Time) (point, bool) {
	for i := len(h.points) - 1; i >= 0 && !h.points[i].gap; i-- {
		if i == 0 || h.points[i-1].gap || now.Sub(h.points[i-1].time) > rateTime {
			return h.points[i], true
		}
	}
	return point{}, false
}

// rate is never negative: a chunk may be started again after its worker was lost.
func rate(records int64, d time.Duration) float64 {
	if d <= 0 || records <= 0 {
		return 0
	}
	return float64(records) / d.Seconds()
}
