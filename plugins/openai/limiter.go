package openai

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/congestion"
)

// limiter makes requests wait until the server may have another one.
type limiter struct {
	mu       sync.Mutex
	window   congestion.Window
	inFlight int
	waiting  []chan struct{} // for room; empty while the window pauses
	refusal  string          // what the server said when it last asked to slow down
	now      func() time.Time
}

func newLimiter(most int) *limiter {
	return &limiter{window: congestion.New(most), now: time.Now}
}

// ticket is a request's permission to be in flight.
type ticket struct{ round int }

// held says that no request may start for a long time.
type held struct {
	pause   time.Duration
	refusal string
}

func (h *held) Error() string { return "the server refuses requests for now: " + h.refusal }

// longHold is the longest pause that a request waits for in the limiter.
const longHold = 5 * time.Second

// acquire waits until another request may start. The error is a *held, or that of ctx.
func (l *limiter) acquire(ctx context.Context) (ticket, error) {
	for {
		l.mu.Lock()
		wait := l.window.Pause(l.now())
		if wait <= 0 && l.inFlight < l.window.Limit() {
			l.inFlight++
			t := ticket{l.window.Round()}
			l.mu.Unlock()
			return t, nil
		}
		if wait > longHold {
			err := &held{wait, l.refusal}
			l.mu.Unlock()
			return ticket{}, err
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

// release ends a request. If the server refused it, after is how long it asks to wait, 0 if it
// does not say, and refusal what it said.
func (l *limiter) release(t ticket, o congestion.Outcome, after time.Duration, refusal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	if o == congestion.Refused {
		l.refusal = refusal
	}
	l.window.Ended(t.round, o, after, l.now())
	l.wake()
}

// refuses returns how often in a row, and for how long, the server has refused requests.
func (l *limiter) refuses() (times int, long time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window.Refusals(l.now())
}

// wake lets as many requests try again as there is room for, or all of them if the window
// pauses: no request in flight may be left to wake them afterwards. The caller must hold l.mu.
func (l *limiter) wake() {
	room := l.window.Limit() - l.inFlight
	if l.window.Pause(l.now()) > 0 {
		room = len(l.waiting)
	}
	for ; room > 0 && len(l.waiting) > 0; room-- {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
