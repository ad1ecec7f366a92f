package congestion

import (
	"testing"
	"time"
)

// Requests that were in flight together halve the limit once; successes raise it again.
func TestLimit(t *testing.T) {
	w, now := New(16), time.Now()
	end := func(n int, o Outcome) {
		round := w.Round()
		for range n {
			w.Ended(round, o, 0, now)
		}
	}
	check := func(want int) {
		t.Helper()
		if w.Limit() != want {
			t.Fatalf("limit %d, want %d", w.Limit(), want)
		}
	}
	end(16, Overloaded)
	check(8)
	for range 5 {
		end(1, Overloaded)
	}
	check(1)
	end(1000, Served)
	check(16)
	end(1, Other)
	check(16)
	if w.Pause(now) > 0 {
		t.Errorf("a pause of %s although the server refused nothing", w.Pause(now))
	}
}

// A server that refuses everything gets longer pauses, however short the wait is that it asks
// for, until it serves a request. Requests that were in flight together count once.
func TestPauses(t *testing.T) {
	w, now := New(4), time.Now()
	end := func(o Outcome, after time.Duration) time.Duration {
		round := w.Round()
		for range w.Limit() {
			w.Ended(round, o, after, now)
		}
		pause := w.Pause(now)
		now = now.Add(max(pause, 0))
		return pause
	}
	for i, want := range []int64{100, 200, 400, 800} {
		if got := end(Refused, 0).Milliseconds(); got != want {
			t.Errorf("pause %d is %d ms, want %d", i+1, got, want)
		}
	}
	if got := end(Refused, 2*time.Second); got != 2*time.Second {
		t.Errorf("the server asked for 2s, and the pause is %s", got)
	}
	if times, long := w.Refusals(now); times != 5 || long != 3500*time.Millisecond {
		t.Errorf("%d refusals in %s", times, long)
	}
	if got := end(Refused, 2*time.Second); got != 32*FirstPause {
		t.Errorf("the server asked for 2s again, and the pause is %s", got)
	}
	if got := end(Served, 0); got > 0 {
		t.Errorf("a pause of %s although the server answers", got)
	}
	if got := end(Refused, 0); got != FirstPause {
		t.Errorf("the pause after an answer is %s", got)
	}
	for range 20 {
		if got := end(Refused, 10*time.Millisecond); got > 80*time.Millisecond {
			t.Fatalf("the server asked for 10ms, and the pause is %s", got)
		}
	}
	for range 20 {
		end(Refused, 0)
	}
	if got := end(Refused, 0); got != LongestPause {
		t.Errorf("the longest pause is %s", got)
	}
	if got := end(Refused, time.Hour); got != time.Hour {
		t.Errorf("the server asked for an hour, and the pause is %s", got)
	}
}
