package worker

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// Requests that were in flight together halve the limit once; successes raise it again.
func TestCongestionLimit(t *testing.T) {
	w, now := newCongestion(16), time.Now()
	end := func(n int, o plugins.ServerState) {
		round := w.round
		for range n {
			w.ended(round, o, 0, now)
		}
	}
	check := func(want int) {
		t.Helper()
		if int(w.limit) != want {
			t.Fatalf("limit %d, want %d", int(w.limit), want)
		}
	}
	end(16, plugins.ServerOverloaded)
	check(8)
	for range 5 {
		end(1, plugins.ServerOverloaded)
	}
	check(1)
	for range 1000 {
		w.served()
	}
	check(16)
	end(1, plugins.ServerUnknown)
	check(16)
	if w.pause(now) > 0 {
		t.Errorf("a pause of %s although the server refused nothing", w.pause(now))
	}
}

// A server that refuses everything gets longer pauses, however short the wait is that it asks
// for, until it serves a request. Requests that were in flight together count once.
func TestCongestionPauses(t *testing.T) {
	w, now := newCongestion(4), time.Now()
	end := func(o plugins.ServerState, after time.Duration) time.Duration {
		round := w.round
		for range int(w.limit) {
			w.ended(round, o, after, now)
		}
		pause := w.pause(now)
		now = now.Add(max(pause, 0))
		return pause
	}
	for i, want := range []int64{100, 200, 400, 800} {
		if got := end(plugins.ServerRefuses, 0).Milliseconds(); got != want {
			t.Errorf("pause %d is %d ms, want %d", i+1, got, want)
		}
	}
	if got := end(plugins.ServerRefuses, 2*time.Second); got != 2*time.Second {
		t.Errorf("the server asked for 2s, and the pause is %s", got)
	}
	if w.refusals != 5 {
		t.Errorf("%d refusals", w.refusals)
	}
	if got := end(plugins.ServerRefuses, 2*time.Second); got != 32*firstPause {
		t.Errorf("the server asked for 2s again, and the pause is %s", got)
	}
	for range int(w.limit) {
		w.served()
	}
	if got := w.pause(now); got > 0 {
		t.Errorf("a pause of %s although the server answers", got)
	}
	if got := end(plugins.ServerRefuses, 0); got != firstPause {
		t.Errorf("the pause after an answer is %s", got)
	}
	for range 20 {
		if got := end(plugins.ServerRefuses, 10*time.Millisecond); got > 80*time.Millisecond {
			t.Fatalf("the server asked for 10ms, and the pause is %s", got)
		}
	}
	for range 20 {
		end(plugins.ServerRefuses, 0)
	}
	if got := end(plugins.ServerRefuses, 0); got != longestPause {
		t.Errorf("the longest pause is %s", got)
	}
	if got := end(plugins.ServerRefuses, time.Hour); got != time.Hour {
		t.Errorf("the server asked for an hour, and the pause is %s", got)
	}
}
