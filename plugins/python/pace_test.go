package python

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The number of concurrently prepared batches follows the measured throughput. Each case
// is a job of 20,000 s with simulated rates: rate is the throughput of n concurrent
// batches, good whether n is right once there was time to find out.
func TestPace(t *testing.T) {
	contend := func(n int) float64 { return 1 / (1 + 0.1*float64(n)) }
	disk := func(n int) float64 { return float64(min(n, 4)) / 10 }
	always := func(rate func(int) float64) func(int, bool) float64 {
		return func(n int, _ bool) float64 { return rate(n) }
	}
	few := func(n int, _ bool) bool { return n <= 3 }
	many := func(n int, _ bool) bool { return n >= 4 }
	for name, c := range map[string]struct {
		waits bool
		rate  func(n int, later bool) float64
		good  func(n int, later bool) bool
	}{
		"the GPU is the slowest":               {false, always(func(int) float64 { return 1 }), few},
		"threads that wait for a disk":         {true, always(disk), many},
		"threads that contend with each other": {true, always(func(n int) float64 { return 1 / (1 + 0.05*float64(n)) }), few},
		"a few are best": {true, always(func(n int) float64 { return []float64{2: 0.8, 3: 1, 4: 0.9, 5: 0.85, 6: 0.8}[n] }),
			func(n int, _ bool) bool { return n == 3 }},
		"the work changes in the middle, and is more": {true, func(n int, later bool) float64 {
			if later {
				return disk(n)
			}
			return contend(n)
		}, func(n int, later bool) bool { return (n >= 4) == later }},
		"the work changes in the middle, and is less": {true, func(n int, later bool) float64 {
			if later {
				return contend(n)
			}
			return disk(n)
		}, func(n int, later bool) bool { return (n >= 4) != later }},
	} {
		t.Run(name, func(t *testing.T) {
			const half = 10_000.0
			now, chance := 0.0, rand.New(rand.NewPCG(1, 2))
			p := newPace(4, func() time.Time { return time.Unix(0, int64(now*1e9)) })
			good, judged := 0, 0
			for now < 2*half {
				n, later := p.wanted, now > half
				if n < 2 || n > 6 {
					t.Fatalf("%d batches", n)
				}
				if c.waits {
					p.waits()
				}
				now += 0.25 / c.rate(n, later) * (0.9 + 0.2*chance.Float64())
				p.taken()
				if now > 0.5*half && now < half || now > 1.5*half {
					judged++
					if c.good(n, later) {
						good++
					}
				}
			}
			if float64(good) <= 0.9*float64(judged) {
				t.Errorf("right for %d of %d batches", good, judged)
			}
		})
	}
}

// TestProcessPace: the number of batches prepared ahead grows while process waits, up to
// the limit, and stays there however rates vary.
func TestProcessPace(t *testing.T) {
	p := newProcessPace(6)
	for range 100 {
		p.taken()
	}
	if p.wanted != fewestAhead {
		t.Errorf("%d wanted although process never waited", p.wanted)
	}
	for range 20 {
		p.waits()
		p.taken()
	}
	for range 10000 {
		p.taken()
	}
	if p.wanted != 6+aheadEach*6+fewestAhead {
		t.Errorf("%d wanted; want the limit", p.wanted)
	}
}
