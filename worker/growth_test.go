package worker

import (
	"testing"
	"time"
)

// grown returns the size that batches of a program reach, and how many batches that takes.
func grown(g *growth, cost, each time.Duration) (size, batches int) {
	for same := 0; same < 4; batches++ {
		before := g.size
		g.good(g.size, cost+time.Duration(g.size)*each)
		if same++; g.size != before {
			same = 0
		}
	}
	return g.size, batches - 4
}

func TestBatchesGrowUntilTheirCostIsSmall(t *testing.T) {
	for name, test := range map[string]struct {
		cost, each, timeout time.Duration
		share               float64 // the most that the cost may take
		largest             int
	}{
		"python":               {20 * time.Millisecond, 40 * time.Microsecond, 0, 0.05, 1 << 15},
		"awk":                  {2 * time.Millisecond, time.Microsecond, 0, 0.05, 1 << 17},
		"a slow program":       {20 * time.Millisecond, time.Second, 0, 0.05, 256},
		"loads a model":        {10 * time.Second, 5 * time.Millisecond, 0, 0.05, 1 << 16},
		"loads for too long":   {time.Minute, 5 * time.Millisecond, 0, 0.4, 1 << 16},
		"no cost":              {0, time.Millisecond, 0, 0.05, 1 << 11},
		"next to no work":      {time.Second, 1, 0, 1, maxGrown},
		"a time limit of 40 s": {time.Second, 10 * time.Millisecond, 40 * time.Second, 0.2, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrowth(128, test.timeout)
			size, batches := grown(g, test.cost, test.each)
			took := test.cost + time.Duration(size)*test.each
			if share := float64(test.cost) / float64(took); share > test.share || size > test.largest || batches > 8 {
				t.Errorf("batches of %d after %d: %s, of which the cost is %.3f", size, batches, took, share)
			}
			if test.timeout > 0 && took > test.timeout/4+test.cost {
				t.Errorf("a batch takes %s", took)
			}
		})
	}
}

// A batch that is smaller than the size, or slow because the machine is busy, says nothing.
func TestGrowthIgnoresWhatItCannotCompare(t *testing.T) {
	g := newGrowth(128, 0)
	g.good(50, time.Minute)
	if g.size != 128 {
		t.Errorf("%d", g.size)
	}
	size, _ := grown(g, 20*time.Millisecond, 40*time.Microsecond)
	for range 10 {
		g.good(128, 5*time.Second)
		g.good(size, time.Minute)
	}
	if g.size != size {
		t.Errorf("%d, then %d", size, g.size)
	}
}
