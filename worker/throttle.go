package worker

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// throttle decides how many records may be at a concurrent kernel.
type throttle struct {
	full    int        // the kernel's number
	ceiling int        // less than that after the kernel ran out of memory
	window  congestion // of the server that the kernel asks
	holding bool       // no record can be tried for now
	since   time.Time  // when that last changed
}

func newThrottle(full int) throttle {
	return throttle{full: full, ceiling: full, window: newCongestion(full)}
}

// capacity returns how many records may be at the kernel. share is the pace of the device.
func (t *throttle) capacity(share float64, now time.Time) int {
	if share <= 0 || t.window.pause(now) > 0 {
		return 0
	}
	n := min(t.ceiling, int(t.window.limit))
	if share < 1 {
		n = min(n, max(1, int(share*float64(t.full))))
	}
	return n
}

// shrink reacts to a record for which the device's memory did not suffice next to others. It
// reports false if the record was alone: it is the record then, not their number.
func (t *throttle) shrink(others int) bool {
	if others == 0 && t.ceiling == 1 {
		t.ceiling = t.full
		return false
	}
	t.ceiling = max(1, min(t.ceiling, others+1)/2)
	return true
}

// refuses reports whether the server refuses everything.
func (t *throttle) refuses() bool { return t.window.refusals > 0 }

// follow reacts to what an answer shows about the server behind the kernel. If the server asks to
// slow down, no record is sent for that time, and fewer at a time from then on. changed reports
// that records can be tried no longer, because of why, or again.
func (t *throttle) follow(l landing, failure *fault.Error, now time.Time) (why string, changed bool) {
	switch a := l.answer; {
	case a.Verdict == plugins.Later:
	case a.Server == plugins.ServerOverloaded:
		t.window.ended(l.flight.round, a.Server, 0, now)
	case a.Verdict == plugins.Retry && a.After > 0:
		t.window.ended(l.flight.round, plugins.ServerRefuses, backOff(1, a.After, rand.Float64()), now)
	case a.Verdict == plugins.Retry:
		t.window.ended(l.flight.round, a.Server, 0, now)
	case failure == nil || failure.Kind == fault.Record:
		t.window.served()
	}
	if failure != nil && failure.Kind == fault.Stopped { // that ends the job, not the wait
		return "", false
	}
	return t.hold(l, now)
}

// hold follows whether records can be tried. An answer shows it, unless its record was sent
// before this last changed.
func (t *throttle) hold(l landing, now time.Time) (why string, changed bool) {
	why = t.pauses(l.answer, now)
	holding := why != "" || l.answer.Verdict == plugins.Later || t.holding && t.window.pause(now) >= longPause
	if holding == t.holding || holding && why == "" || l.flight.started.Before(t.since) {
		return "", false
	}
	t.holding, t.since = holding, now
	return why, true
}

// longPause is the shortest pause that is reported.
const longPause = 5 * time.Second

// pauses returns why no record is sent for a long time, or nothing.
func (t *throttle) pauses(a plugins.Answer, now time.Time) string {
	pause := t.window.pause(now)
	switch {
	case a.Verdict == plugins.Later:
		return a.Message
	case pause < longPause || a.Verdict != plugins.Retry:
		return ""
	case a.Message == "":
		return fmt.Sprintf("the kernel asks for a pause; the next record follows in %s", pause.Round(time.Second))
	}
	return fmt.Sprintf("the kernel asks for a pause (%s); the next record follows in %s", a.Message, pause.Round(time.Second))
}

const (
	// firstWait is the wait before the first of the attempts that a kernel asks for, and
	// longestWait the longest that gpurun chooses. A kernel may ask for more.
	firstWait   = time.Second
	longestWait = time.Minute
	// jitter is the share of a wait that is left to chance, so that records which failed
	// together do not come back together.
	jitter = 0.25
)

// backOff returns how long to wait before attempt n, counted from 1. after is what the kernel
// asks for, 0 if it does not say. chance is between 0 and 1.
func backOff(n int, after time.Duration, chance float64) time.Duration {
	if after <= 0 {
		after = min(longestWait, firstWait<<min(max(n-1, 0), 16))
	}
	return after + time.Duration(chance*jitter*float64(after))
}
