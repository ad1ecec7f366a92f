package view

import (
	"math"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after is a time in seconds from the start.
func after(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.02*math.Abs(want) {
		t.Errorf("%s = %.2f, want about %.2f", what, got, want)
	}
}

func TestGrowthNeedsTwoSamples(t *testing.T) {
	var p growth
	if got := p.rate(start); got != 0 {
		t.Errorf("rate of nothing = %v", got)
	}
	p.add(start, 0)
	if got := p.rate(after(1)); got != 0 {
		t.Errorf("rate of one sample = %v", got)
	}
	p.add(start, 100)
	if got := p.rate(start); got != 0 {
		t.Errorf("rate of no time = %v", got)
	}
	near(t, "rate", p.rate(after(2)), 50)
}

// The rate follows the last half minute and forgets what came before.
func TestGrowthFollowsTheWindow(t *testing.T) {
	var p growth
	at, done := 0.0, int64(0)
	run := func(seconds float64, rate int64) {
		for end := at + seconds; at < end; at += 0.1 {
			p.add(after(at), done)
			done += rate / 10
		}
	}
	run(60, 1000)
	near(t, "steady rate", p.rate(after(at)), 1000)
	run(15, 3000)
	near(t, "rate half a window later", p.rate(after(at)), 2000)
	run(20, 3000)
	near(t, "rate a window later", p.rate(after(at)), 3000)
	if n := len(p.samples); n > 210 {
		t.Errorf("%d samples are kept", n)
	}
	near(t, "rate after half a minute of silence", p.rate(after(at+30)), 1500)
}

// Thousands of counts per second neither accumulate nor hide the newest.
func TestGrowthKeepsFewSamples(t *testing.T) {
	var p growth
	for i := range 100_000 {
		p.add(start.Add(time.Duration(i)*time.Millisecond), int64(i))
	}
	if n := len(p.samples); n > 210 {
		t.Errorf("%d samples are kept", n)
	}
	if last := p.samples[len(p.samples)-1]; last.n != 99_999 {
		t.Errorf("the newest sample is %d", last.n)
	}
	near(t, "rate", p.rate(after(100)), 1000)
}

func TestGrowthIsNeverNegative(t *testing.T) {
	var p growth
	p.add(start, 100)
	p.add(after(1), 50)
	if got := p.rate(after(2)); got != 0 {
		t.Errorf("rate = %v", got)
	}
}

// The displayed rate stays for a second, once there is a second of data.
func TestGrowthCalm(t *testing.T) {
	var p growth
	p.add(start, 0)
	p.add(after(0.1), 1000)
	near(t, "first", p.rate(after(0.1)), 10_000)
	p.add(after(0.5), 1000)
	near(t, "unsettled", p.rate(after(0.5)), 2000)
	p.add(after(2), 2000)
	near(t, "settled", p.rate(after(2)), 1000)
	p.add(after(2.5), 9000)
	near(t, "held", p.rate(after(2.9)), 1000)
	near(t, "after a second", p.rate(after(3)), 3000)
}
