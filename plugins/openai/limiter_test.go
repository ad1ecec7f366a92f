package openai

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/congestion"
)

// The server's Retry-After holds back every request.
func TestHold(t *testing.T) {
	l := newLimiter(4)
	now := time.Now()
	l.now = func() time.Time { return now }
	one, _ := l.acquire(t.Context())
	l.release(one, congestion.Refused, time.Hour)
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
			l.release(one, []congestion.Outcome{congestion.Served, congestion.Overloaded, congestion.Other}[i%3], 0)
		})
	}
	group.Wait()
	if most.Load() > 5 || l.inFlight != 0 {
		t.Errorf("%d in flight at most, %d now", most.Load(), l.inFlight)
	}
}
