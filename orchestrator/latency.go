package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/wire"
)

// Histogram counts durations in buckets of growing size.
type Histogram = histogram.Histogram

// SegmentStats is what the records of a ChunkDone took.
type SegmentStats struct {
	Batches int64 `json:"batches"`
	// Busy is how long the kernel was computing.
	Busy time.Duration `json:"busy_ns"`
	// Restarts counts kernel processes started after one died, Retries batches that were
	// computed again, Nulls numbers that became null.
	Restarts int64 `json:"restarts"`
	Retries  int64 `json:"retries"`
	Nulls    int64 `json:"null_numbers"`
	// Figures are further counts by name, such as fetched files.
	Figures map[string]float64 `json:"figures,omitempty"`
	// Latency is that of the batches since the last Progress; nil for none.
	Latency *Histogram `json:"-"`
}

func newSegmentStats(s wire.Stats) SegmentStats {
	return SegmentStats{
		Batches: s.Batches, Busy: s.Busy, Restarts: s.Restarts, Retries: s.Retries, Nulls: s.Nulls,
		Figures: s.Figures, Latency: s.Latency,
	}
}

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

// addLatency adds the latency of further batches.
func (r *Report) addLatency(h *Histogram) {
	if h != nil {
		r.latency.Merge(*h)
	}
}
