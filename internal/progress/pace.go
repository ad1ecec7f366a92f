package progress

import "time"

const (
	// paceWindow is how far back the rate looks: long enough to be steady, short
	// enough to follow a device that slows down.
	paceWindow = 30 * time.Second
	// paceShown is how long a displayed rate stays unchanged: digits that change with
	// every frame are unreadable.
	paceShown = time.Second
)

// pace measures how fast a count grows.
type pace struct {
	samples  []sample
	calmed   float64 // the last result of calm, and its time
	calmedAt time.Time
}

type sample struct {
	at   time.Time
	done int64
}

// add records the count.
func (p *pace) add(now time.Time, done int64) {
	// One sample per hundredth of the window is enough; the newest is always exact.
	if n := len(p.samples); n > 1 && now.Sub(p.samples[n-2].at) < paceWindow/100 {
		p.samples[n-1] = sample{now, done}
	} else {
		p.samples = append(p.samples, sample{now, done})
	}
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) > paceWindow {
		p.samples = p.samples[1:]
	}
}

// lower subtracts n records from the counts so far: they will be computed and counted
// again.
func (p *pace) lower(n int64) {
	for i := range p.samples {
		p.samples[i].done -= n
	}
}

// rate returns records per second, 0 while unknown.
func (p *pace) rate(now time.Time) float64 {
	if len(p.samples) < 2 {
		return 0
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	elapsed := now.Sub(first.at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return max(0, float64(last.done-first.done)/elapsed)
}

// calm returns the rate to display: at most a second old.
func (p *pace) calm(now time.Time) float64 {
	if !p.settled(p.calmedAt) || now.Sub(p.calmedAt) >= paceShown {
		p.calmed, p.calmedAt = p.rate(now), now
	}
	return p.calmed
}

// settled reports whether the rate is meaningful yet: the first batches arrive late, or
// all at once.
func (p *pace) settled(now time.Time) bool {
	return len(p.samples) > 1 && now.Sub(p.samples[0].at) >= paceShown
}
