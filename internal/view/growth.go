package view

import "time"

const (
	// growthWindow is how far back a rate looks: long enough to be steady, short enough to follow
	// a device that slows down.
	growthWindow = 30 * time.Second
	// growthShown is how long a rate stays the same: digits that change all the time cannot be
	// read.
	growthShown = time.Second
)

// growth measures how fast a count grows.
type growth struct {
	samples []growthSample
	shown   float64 // the last result of rate, and its time
	shownAt time.Time
}

type growthSample struct {
	at time.Time
	n  int64
}

// add records the count.
func (g *growth) add(now time.Time, n int64) {
	// One sample per hundredth of the window is enough; the newest is always exact.
	if last := len(g.samples) - 1; last > 0 && now.Sub(g.samples[last-1].at) < growthWindow/100 {
		g.samples[last] = growthSample{now, n}
	} else {
		g.samples = append(g.samples, growthSample{now, n})
	}
	for len(g.samples) > 2 && now.Sub(g.samples[1].at) > growthWindow {
		g.samples = g.samples[1:]
	}
}

// rate returns the growth per second, at most a second old; 0 while unknown.
func (g *growth) rate(now time.Time) float64 {
	if len(g.samples) < 2 {
		return 0
	}
	if !g.steady(g.shownAt) || now.Sub(g.shownAt) >= growthShown {
		first, last := g.samples[0], g.samples[len(g.samples)-1]
		g.shown, g.shownAt = rate(last.n-first.n, now.Sub(first.at)), now
	}
	return g.shown
}

// steady reports whether the rate is meaningful yet: the first batches arrive late, or all at
// once.
func (g *growth) steady(now time.Time) bool {
	return len(g.samples) > 1 && now.Sub(g.samples[0].at) >= growthShown
}
