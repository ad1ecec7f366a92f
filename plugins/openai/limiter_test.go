package openai

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Requests that were in flight together halve the limit once; successes raise it again.
func TestLimit(t *testing.T) {
	l := newLimiter(16)
	take := func(n int) (list []ticket) {
		for range n {
			one, err := l.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, one)
		}
		return list
	}
	for _, one := range take(16) {
		l.release(one, overloaded, 0)
	}
	if l.limit != 8 {
		t.Fatalf("limit %v, want 8", l.limit)
	}
	for range 5 {
		l.release(take(1)[0], overloaded, 0)
	}
	if l.limit != 1 {
		t.Fatalf("limit %v, want 1", l.limit)
	}
	for range 1000 {
		l.release(take(1)[0], served, 0)
	}
	if l.limit != 16 {
		t.Fatalf("limit %v, want 16", l.limit)
	}
	l.release(take(1)[0], other, 0)
	if l.limit != 16 || l.inFlight != 0 {
		t.Fatalf("limit %v, %d in flight", l.limit, l.inFlight)
	}
}

// The server's Retry-After holds back every request.
func TestHold(t *testing.T) {
	l := newLimiter(4)
	now := time.Now()
	l.now = func() time.Time { return now }
	one, _ := l.acquire(t.Context())
	l.release(one, refused, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.acquire(ctx); err == nil {
		t.Error("a request started although the server asked to wait")
	}
	now = now.Add(time.Hour)
	if _, err := l.acquire(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server that refuses requests without saying how long to wait gets longer pauses, until it
// serves one. Requests that were in flight together count once.
func TestPauses(t *testing.T) {
	l := newLimiter(4)
	now := time.Now()
	l.now = func() time.Time { return now }
	refuse := func(o outcome, after time.Duration) time.Duration {
		var list []ticket
		for range int(l.limit) {
			one, err := l.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, one)
		}
		for _, one := range list {
			l.release(one, o, after)
		}
		wait := l.pause()
		now = now.Add(max(wait, 0))
		return wait
	}
	for i, want := range []time.Duration{100, 200, 400, 800} {
		if got := refuse(refused, 0); got != want*time.Millisecond {
			t.Errorf("pause %d is %s, want %dms", i+1, got, want)
		}
	}
	if got := refuse(refused, time.Second); got != time.Second {
		t.Errorf("the server asked for 1s, and the pause is %s", got)
	}
	if times, long := l.refuses(); times != 5 || long != 2500*time.Millisecond {
		t.Errorf("%d refusals in %s", times, long)
	}
	if got := refuse(served, 0); got > 0 {
		t.Errorf("a pause of %s although the server answers", got)
	}
	if got := refuse(refused, 0); got != firstPause {
		t.Errorf("the pause after an answer is %s", got)
	}
	for range 20 {
		refuse(refused, 0)
	}
	if got := refuse(refused, 0); got != longestPause {
		t.Errorf("the longest pause is %s", got)
	}
}

// At most as many requests as the limit are in flight, and every request ends.
func TestLimiterUnderLoad(t *testing.T) {
	l := newLimiter(5)
	var group sync.WaitGroup
	var now, most atomic.Int64
	for i := range 200 {
		group.Go(func() {
			ctx := t.Context()
			if i%7 == 0 { // gives up early
				limited, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				ctx = limited
			}
			one, err := l.acquire(ctx)
			if err != nil {
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Millisecond)
			now.Add(-1)
			l.release(one, []outcome{served, overloaded, other}[i%3], 0)
		})
	}
	group.Wait()
	if most.Load() > 5 || l.inFlight != 0 {
		t.Errorf("%d in flight at most, %d now", most.Load(), l.inFlight)
	}
}
