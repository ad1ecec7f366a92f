package fetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// limits are the times that the steps of a request may take, and how long to wait between
// tries.
type limits struct {
	connect, firstByte, idle time.Duration
	backOff, mostBackOff     time.Duration
}

var defaultLimits = limits{
	connect: 10 * time.Second, firstByte: 30 * time.Second, idle: 20 * time.Second,
	backOff: 200 * time.Millisecond, mostBackOff: 10 * time.Second,
}

// maxRedirects is how many redirects are followed.
const maxRedirects = 5

// errTime means that a fetch took too long.
var errTime = errors.New("it takes too long")

// timing ends a fetch that takes too long, altogether or without receiving a byte. While
// the fetch waits for memory, time stands still. Only one goroutine may use it. A nil timing limits
// nothing.
type timing struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   time.Duration

	left    time.Duration // of the whole fetch, when it was last resumed
	resumed time.Time
	total   *time.Timer
	quiet   *time.Timer // nil unless a body is being read
}

func newTiming(ctx context.Context, total, idle time.Duration) *timing {
	t := &timing{left: total, idle: idle, resumed: time.Now()}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.total = time.AfterFunc(total, t.expire)
	return t
}

func (t *timing) expire() { t.cancel(errTime) }

// remaining returns how much time is left.
func (t *timing) remaining() time.Duration { return t.left - time.Since(t.resumed) }

func (t *timing) pause() {
	if t == nil {
		return
	}
	t.total.Stop()
	t.left = t.remaining()
	if t.quiet != nil {
		t.quiet.Stop()
	}
}

func (t *timing) resume() {
	if t == nil {
		return
	}
	t.resumed = time.Now()
	t.total.Reset(max(0, t.left))
	t.received()
}

// received notes that bytes have arrived.
func (t *timing) received() {
	if t.quiet != nil {
		t.quiet.Reset(t.idle)
	}
}

// watch limits the time without a byte from now on, until the returned function is called.
// It cancels only the request of the given function, so that another try is possible.
func (t *timing) watch(cancel context.CancelCauseFunc) (stop func()) {
	t.quiet = time.AfterFunc(t.idle, func() { cancel(errTime) })
	return func() {
		t.quiet.Stop()
		t.quiet = nil
	}
}

// stop releases the timers.
func (t *timing) stop() {
	t.total.Stop()
	t.cancel(context.Canceled)
}

// sleep waits, and returns false if the fetch ends first.
func (t *timing) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// wait returns how long to wait before the given try, from 1 on: twice as long each time,
// at random between half and all of it, so that many fetches do not return at once.
func (l limits) wait(try int) time.Duration {
	most := l.mostBackOff
	if try < 16 {
		most = min(most, l.backOff<<(try-1))
	}
	return most/2 + rand.N(most/2+1)
}
