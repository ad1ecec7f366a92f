package progress

import "time"

const (
	// paceWindow is how far back the rate looks: long enough to be calm, short
	// enough to follow a device that is slowed.
	paceWindow = 30 * time.Second
	// paceShown is how long a rate stands on the screen: digits that change with
	// each frame cannot be read.
	paceShown = time.Second
)

// pace measures how fast a count grows.
type pace struct {
	samples  []sample
	calmed   float64 // what calm gave last, and when
	calmedAt time.Time
}

type sample struct {
	at   time.Time
	done int64
}

// add notes the count.
func (p *pace) add(now time.Time, done int64) {
	// One sample a window's hundredth is enough; the newest is always exact.
	if n := len(p.samples); n > 1 && now.Sub(p.samples[n-2].at) < paceWindow/100 {
		p.samples[n-1] = sample{now, done}
	} else {
		p.samples = append(p.samples, sample{now, done})
	}
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) > paceWindow {
		p.samples = p.samples[1:]
	}
}

// lower makes less of the counts so far: n records of them are taken back, and
// will be counted again.
func (p *pace) lower(n int64) {
	for i := range p.samples {
		p.samples[i].done -= n
	}
}

// rate is in records a second, 0 while it cannot be told.
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

// calm is the rate as it is shown: a second old at the most.
func (p *pace) calm(now time.Time) float64 {
	if !p.settled(p.calmedAt) || now.Sub(p.calmedAt) >= paceShown {
		p.calmed, p.calmedAt = p.rate(now), now
	}
	return p.calmed
}

// settled reports whether a rate of that time is worth anything: the first
// batches come late, or all at once.
func (p *pace) settled(now time.Time) bool {
	return len(p.samples) > 1 && now.Sub(p.samples[0].at) >= paceShown
}
