package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/internal/histogram"
)

// Histogram counts durations in buckets of growing size.
type Histogram = histogram.Histogram

// Latency describes how long batches took on their devices.
type Latency struct {
	Batches int64         `json:"batches"`
	Mean    time.Duration `json:"mean_ns"`
	P50     time.Duration `json:"p50_ns"`
	P90     time.Duration `json:"p90_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
}

// Summarize returns the percentiles of a histogram, exact to a fifth; nil if it is empty.
func Summarize(h Histogram) *Latency {
	n := h.Count()
	if n == 0 {
		return nil
	}
	return &Latency{
		Batches: n, Mean: h.Sum / time.Duration(n),
		P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), Max: h.Max,
	}
}
