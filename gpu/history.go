package gpu

import (
	"slices"
	"time"
)

// history keeps the last samples of a device.
type history struct{ samples []Sample }

func (h *history) add(s Sample, size int) {
	h.samples = append(h.samples, s)
	if over := len(h.samples) - size; over > 0 {
		// Copy, so that memory does not grow with the length of a job.
		h.samples = append(h.samples[:0], h.samples[over:]...)
	}
}

// Direction is how a temperature is changing.
type Direction string

// The directions.
const (
	Rising  Direction = "rising"
	Falling Direction = "falling"
	Stable  Direction = "stable"
)

// trendTime is how far back a trend looks.
const trendTime = 5 * time.Minute

// trendStep is the smallest change in °C over that time that exceeds the noise of the
// sensor and the load.
const trendStep = 2

// Trend is how a temperature has changed recently.
type Trend struct {
	Direction Direction `json:"direction"`
	Min       int       `json:"min_c"`
	Max       int       `json:"max_c"`
	Average   float64   `json:"average_c"`
	Samples   int       `json:"samples"`
}

// trend is how the temperature has changed in the last five minutes.
func (h *history) trend(now time.Time) Optional[Trend] {
	var values []int
	for _, s := range h.samples {
		if celsius, known := s.Temperature.Get(); known && now.Sub(s.Time) <= trendTime {
			values = append(values, celsius)
		}
	}
	return TrendOf(values)
}

// TrendOf compares the first third of the temperatures with the last third; absent if there are none.
func TrendOf(values []int) Optional[Trend] {
	if len(values) == 0 {
		return Optional[Trend]{}
	}
	t := Trend{Direction: Stable, Min: slices.Min(values), Max: slices.Max(values), Average: mean(values), Samples: len(values)}
	third := max(1, len(values)/3)
	switch change := mean(values[len(values)-third:]) - mean(values[:third]); {
	case change >= trendStep:
		t.Direction = Rising
	case change <= -trendStep:
		t.Direction = Falling
	}
	return Some(t)
}

func mean(values []int) float64 {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(len(values))
}
