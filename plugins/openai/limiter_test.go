package openai

import (
	"context"
	"errors"
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
	l.release(one, congestion.Refused, time.Hour, "slow down")
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
			l.release(one, []congestion.Outcome{congestion.Served, congestion.Overloaded, congestion.Other}[i%3], 0, "")
		})
	}
	group.Wait()
	if most.Load() > 5 || l.inFlight != 0 {
		t.Errorf("%d in flight at most, %d now", most.Load(), l.inFlight)
	}
}

// When the server asks for a long pause, every request that waits for its turn learns so, also
// if there is room for only one of them.
func TestLongHoldReachesAllThatWait(t *testing.T) {
	l := newLimiter(2)
	one, _ := l.acquire(t.Context())
	two, _ := l.acquire(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ends := make(chan error)
	const waiting = 5
	for range waiting {
		go func() {
			_, err := l.acquire(ctx)
			ends <- err
		}()
	}
	for n := 0; n < waiting; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		n = len(l.waiting)
		l.mu.Unlock()
	}
	l.release(one, congestion.Overloaded, 0, "")
	l.release(two, congestion.Refused, time.Hour, "slow down")
	for range waiting {
		if err := <-ends; !errors.As(err, new(*held)) {
			t.Errorf("a request that waited: %v", err)
		}
	}
}
