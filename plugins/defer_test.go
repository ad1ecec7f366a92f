package plugins

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestFinishTwice(t *testing.T) {
	r := NewResults(1)
	finish := r.Defer()
	r.Unchanged(0)
	finish(nil)
	finish(errors.New("again"))
	if err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWaitPrefersTheResults(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := NewResults(0)
	if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("incomplete: %v", err)
	}
	r.complete(nil)
	if err := r.Wait(ctx); err != nil {
		t.Errorf("complete: %v", err)
	}
}

// Answers wait for each other only where another one is expected soon.
func TestPatience(t *testing.T) {
	for _, test := range []struct {
		took     time.Duration
		inFlight int
		ended    bool
		want     time.Duration
	}{
		{200 * time.Millisecond, 256, false, 2 * time.Millisecond},
		{200 * time.Millisecond, 10, false, 0},                // none is expected
		{10 * time.Second, 5000, false, 5 * time.Millisecond}, // the most
		{10 * time.Second, 500, false, 0},                     // none within that
		{200 * time.Millisecond, 256, true, 0},                // the stream ends
		{50 * time.Millisecond, 256, false, 0},                // a timer is not that precise
		{0, 256, false, 0},
	} {
		calls := &answerCalls{took: test.took, ended: test.ended, cancels: make(map[uint64]context.CancelFunc)}
		for i := range test.inFlight {
			calls.cancels[uint64(i)] = nil
		}
		if got := calls.patience(); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
