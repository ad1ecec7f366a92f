package histogram

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Quantiles are within a bucket of those of the sorted durations, for any distribution,
// whole or merged from parts.
func TestQuantile(t *testing.T) {
	for _, spread := range []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Hour} {
		var parts [3]Histogram
		var all []time.Duration
		for i := range 3000 {
			d := time.Duration(rand.ExpFloat64() * float64(spread))
			all = append(all, d)
			parts[i%3].Add(d)
		}
		var h Histogram
		for _, part := range parts {
			h.Merge(part)
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			exact := all[max(0, int(q*float64(len(all)))-1)]
			got := h.Quantile(q)
			if got < exact || float64(got) > 1.2*float64(exact)+float64(base) {
				t.Errorf("%s: quantile %g is %s, exactly %s", spread, q, got, exact)
			}
		}
		if h.Count() != 3000 || h.Max != all[len(all)-1] {
			t.Errorf("%d durations up to %s", h.Count(), h.Max)
		}
	}
}

func TestExtremes(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram is not empty")
	}
	for _, d := range []time.Duration{-time.Second, 0, base, 1000 * time.Hour, 1 << 62} {
		h.Add(d)
	}
	if got := h.Quantile(1); got != 1<<62 {
		t.Errorf("the longest is %s", got)
	}
	h.Merge(Histogram{Buckets: map[int]int64{-5: 1, 1 << 20: 1}}) // from another version
	if h.Count() != 7 {
		t.Errorf("%d durations", h.Count())
	}
	data, _ := json.Marshal(h)
	var back Histogram
	if err := json.Unmarshal(data, &back); err != nil || back.Count() != 7 {
		t.Errorf("%s: %v", data, err)
	}
}

func TestOctavesRise(t *testing.T) {
	var h Histogram
	for i := range 100 {
		h.Add(time.Duration(i) * 10 * time.Millisecond)
	}
	octaves := h.Octaves()
	for low, n := range octaves {
		for high, m := range octaves {
			if low < high && n > m {
				t.Errorf("%d up to %g, but %d up to %g", n, low, m, high)
			}
		}
	}
	if octaves[0.0128] != 2 { // 12.8 ms
		t.Errorf("%v", octaves)
	}
}
