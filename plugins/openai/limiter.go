package openai

import (
	"context"
	"slices"
	"sync"
	"time"
)

// limiter decides how many requests are in flight. It starts at the most. When the server
// has too much to do, the limit is halved, once for all requests that were in flight then;
// each success raises it by a fraction, so that a full round of successes raises it by one.
type limiter struct {
	mu       sync.Mutex
	most     float64
	limit    float64
	inFlight int
	cuts     int       // how often the limit was halved
	hold     time.Time // no request starts before
	waiting  []chan struct{}
	now      func() time.Time
}

func newLimiter(most int) *limiter {
	return &limiter{most: float64(most), limit: float64(most), now: time.Now}
}

// ticket is a request's permission to be in flight.
type ticket struct{ cuts int }

// acquire waits until another request may start.
func (l *limiter) acquire(ctx context.Context) (ticket, error) {
	for {
		l.mu.Lock()
		wait := l.hold.Sub(l.now())
		if wait <= 0 && l.inFlight < int(l.limit) {
			l.inFlight++
			t := ticket{l.cuts}
			l.mu.Unlock()
			return t, nil
		}
		var room chan struct{}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		} else {
			room = make(chan struct{})
			l.waiting = append(l.waiting, room)
		}
		l.mu.Unlock()
		select {
		case <-room:
		case <-timer:
		case <-ctx.Done():
			l.leave(room)
			return ticket{}, ctx.Err()
		}
	}
}

// leave removes a request that no longer waits. If it was its turn, another one has it.
func (l *limiter) leave(room chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, room); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.wake()
}

// outcome is what a request shows about the server.
type outcome int

const (
	served     outcome = iota
	overloaded         // it asked to slow down, or did not answer in time
	other              // nothing
)

// release ends a request. after is how long the server asks to wait.
func (l *limiter) release(t ticket, o outcome, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	switch {
	case o == served:
		l.limit = min(l.most, l.limit+1/l.limit)
	case o == overloaded && t.cuts == l.cuts:
		l.limit = max(1, l.limit/2)
		l.cuts++
	}
	if until := l.now().Add(after); o == overloaded && after > 0 && until.After(l.hold) {
		l.hold = until
	}
	l.wake()
}

// wake lets as many requests try again as there is room for. The caller must hold l.mu.
func (l *limiter) wake() {
	for room := int(l.limit) - l.inFlight; room > 0 && len(l.waiting) > 0; room-- {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
