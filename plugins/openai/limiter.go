package openai

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// limiter decides how many requests are in flight. It starts at the most. When the server
// has too much to do, the limit is halved, once for all requests that were in flight then;
// each success raises it by a fraction, so that a full round of successes raises it by one.
// While the server refuses requests, all of them pause as long as it asks, or longer each
// time: a limit per minute must not use up the attempts of many records within seconds.
type limiter struct {
	mu       sync.Mutex
	most     float64
	limit    float64
	inFlight int
	cuts     int       // how often the limit was halved
	hold     time.Time // no request starts before
	refusals int       // rounds in a row in which the server refused requests and served none
	refused  time.Time // since when
	waiting  []chan struct{}
	now      func() time.Time
}

func newLimiter(most int) *limiter {
	return &limiter{most: float64(most), limit: float64(most), now: time.Now}
}

// ticket is a request's permission to be in flight.
type ticket struct{ cuts int }

// errHeld says that no request may start for a long time.
var errHeld = errors.New("the server refuses requests for now")

// longHold is the longest pause that a request waits for in the limiter.
const longHold = 5 * time.Second

// acquire waits until another request may start. The error is errHeld, or that of ctx.
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
		if wait > longHold {
			l.mu.Unlock()
			return ticket{}, errHeld
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
	overloaded         // it did not answer in time
	refused            // it asked to slow down
	other              // nothing
)

const (
	// firstPause is the pause after the first refusal of a server that does not say how long
	// to wait, and longestPause the longest.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// release ends a request. after is how long the server asks to wait, 0 if it does not say.
func (l *limiter) release(t ticket, o outcome, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	first := t.cuts == l.cuts // of those that were in flight together
	switch {
	case o == served:
		l.limit = min(l.most, l.limit+1/l.limit)
		l.refusals = 0
	case (o == overloaded || o == refused) && first:
		l.limit = max(1, l.limit/2)
		l.cuts++
	}
	if o == refused {
		l.refuse(first, after)
	}
	l.wake()
}

// refuse makes all requests pause. The caller must hold l.mu.
func (l *limiter) refuse(first bool, after time.Duration) {
	now := l.now()
	if l.refusals == 0 {
		l.refused = now
	}
	if first || l.refusals == 0 {
		l.refusals++
		if after == 0 {
			after = min(longestPause, firstPause<<min(l.refusals-1, 16))
		}
	}
	if until := now.Add(after); until.After(l.hold) {
		l.hold = until
	}
}

// pause returns how long no request may start.
func (l *limiter) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold.Sub(l.now())
}

// refuses returns how often in a row, and for how long, the server has refused requests.
func (l *limiter) refuses() (times int, long time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusals, l.now().Sub(l.refused)
}

// wake lets as many requests try again as there is room for. The caller must hold l.mu.
func (l *limiter) wake() {
	for room := int(l.limit) - l.inFlight; room > 0 && len(l.waiting) > 0; room-- {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
