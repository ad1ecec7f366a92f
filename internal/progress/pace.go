package progress

import "time"

// paceWindow is how far back the rate looks: long enough to be calm, short
// enough to follow a device that is slowed.
const paceWindow = 30 * time.Second

// pace measures how fast a count grows.
type pace struct {
	samples []sample
}

type sample struct {
	at   time.Time
	done int64
}

// add notes the count; a count that falls (a lost chunk) starts over.
func (p *pace) add(now time.Time, done int64) {
	if n := len(p.samples); n > 0 && done < p.samples[n-1].done {
		p.samples = p.samples[:0]
	}
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
	return float64(last.done-first.done) / elapsed
}

// eta is how long the rest will take, 0 if that cannot be told.
func (p *pace) eta(now time.Time, total int64) time.Duration {
	rate := p.rate(now)
	if rate <= 0 || total < 0 || len(p.samples) == 0 {
		return 0
	}
	rest := total - p.samples[len(p.samples)-1].done
	return time.Duration(float64(rest) / rate * float64(time.Second)).Round(time.Second)
}
