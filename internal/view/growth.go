package view

import "time"

const (
	growthWindow = 30 * time.Second
	growthEvery  = time.Second
)

// growth measures how fast a count grows, in the last half minute.
type growth struct{ samples []growthSample }

type growthSample struct {
	at time.Time
	n  int64
}

func (g *growth) add(now time.Time, n int64) {
	if last := len(g.samples) - 1; last > 0 && now.Sub(g.samples[last-1].at) < growthEvery {
		g.samples[last] = growthSample{now, n}
	} else {
		g.samples = append(g.samples, growthSample{now, n})
	}
	for len(g.samples) > 2 && now.Sub(g.samples[1].at) > growthWindow {
		g.samples = g.samples[1:]
	}
}

// rate returns the growth per second, 0 while unknown.
func (g *growth) rate(now time.Time) float64 {
	if len(g.samples) < 2 {
		return 0
	}
	first, last := g.samples[0], g.samples[len(g.samples)-1]
	return max(0, rate(last.n-first.n, now.Sub(first.at)))
}
