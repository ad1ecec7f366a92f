// Package histogram counts durations in buckets that grow by a constant factor, so that a
// few numbers describe milliseconds and hours with the same relative precision.
package histogram

import (
	"maps"
	"math"
	"time"
)

// Bucket i holds durations of at most base*2^(i/perOctave): a quantile is exact to 19%.
const (
	base      = 100 * time.Microsecond
	perOctave = 4
	last      = 28 * perOctave // seven hours; longer ones count here too
)

// Histogram is a set of durations. The zero value is empty. It is not safe for concurrent
// use.
type Histogram struct {
	// Buckets counts durations by bucket; empty buckets are absent.
	Buckets map[int]int64 `json:"buckets,omitempty"`
	Sum     time.Duration `json:"sum_ns"`
	Max     time.Duration `json:"max_ns"`
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	if h.Buckets == nil {
		h.Buckets = make(map[int]int64)
	}
	h.Buckets[bucket(d)]++
	h.Sum += d
	h.Max = max(h.Max, d)
}

// Merge adds all durations of another histogram.
func (h *Histogram) Merge(other Histogram) {
	if h.Buckets == nil && len(other.Buckets) > 0 {
		h.Buckets = make(map[int]int64, len(other.Buckets))
	}
	for i, n := range other.Buckets {
		h.Buckets[min(max(i, 0), last)] += n
	}
	h.Sum += other.Sum
	h.Max = max(h.Max, other.Max)
}

// Clone returns an independent copy.
func (h Histogram) Clone() Histogram {
	h.Buckets = maps.Clone(h.Buckets)
	return h
}

// Count is the number of durations.
func (h Histogram) Count() (n int64) {
	for _, c := range h.Buckets {
		n += c
	}
	return n
}

// Quantile returns a duration that the share q of all durations does not exceed; 0 if there
// are none.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.Count())))
	for i := 0; i < last; i++ { // the last bucket has no bound
		if rank -= h.Buckets[i]; rank <= 0 && h.Buckets[i] > 0 {
			return min(bound(i), h.Max)
		}
	}
	return h.Max
}

// Octaves returns cumulative counts by upper bound in seconds, one bound per factor of two,
// as Prometheus has them.
func (h Histogram) Octaves() map[float64]uint64 {
	all := make(map[float64]uint64, last/perOctave)
	sum := uint64(0)
	for i := 0; i < last; i++ {
		sum += uint64(h.Buckets[i])
		if i%perOctave == 0 {
			all[math.Ldexp(base.Seconds(), i/perOctave)] = sum
		}
	}
	return all
}

func bucket(d time.Duration) int {
	if d <= base {
		return 0
	}
	i := int(math.Ceil(math.Log2(float64(d)/float64(base)) * perOctave))
	return min(max(i, 0), last)
}

func bound(i int) time.Duration {
	return time.Duration(float64(base) * math.Exp2(float64(i)/perOctave))
}
