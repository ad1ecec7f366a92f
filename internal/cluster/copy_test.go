package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// slowShard computes a shard in small steps until its context ends or proceed is closed.
func slowShard(proceed <-chan struct{}) func(context.Context, *Attempt) (Result, error) {
	return func(ctx context.Context, a *Attempt) (Result, error) {
		begun := time.Now().Add(-10 * time.Second)
		a.Follow(func() Progress {
			return Progress{Done: chunk.Counts{Records: 1}, Rate: 1 / time.Since(begun).Seconds()}
		})
		select {
		case <-proceed:
			return compute(ctx, a)
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
}

// quick computes a shard at a known rate.
func quick(ctx context.Context, a *Attempt) (Result, error) {
	result, err := compute(ctx, a)
	result.Rate = 1000
	return result, err
}

// startSlow starts a process that computes shard 0 slowly, and waits until that shows.
func startSlow(t *testing.T, r *Run, proceed <-chan struct{}) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() {
		outcome, err := r.Work(t.Context(), fast(0, slowShard(proceed)))
		if err == nil && !outcome.Complete {
			err = fmt.Errorf("%+v", outcome)
		}
		ended <- err
	}()
	watch := r.Watch(time.Hour)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		shards, err := watch.Shards(t.Context())
		if err == nil && shards[0].Rate > 0 {
			return ended
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", shards, err)
		}
	}
}

// TestCopy: a process with nothing else to do computes the shard of a slow one, which then
// gives up.
func TestCopy(t *testing.T) {
	r := newRun(t, 2, 20)
	slow := startSlow(t, r, nil)
	w := fast(1, quick)
	w.Copy = func(output string) (int64, bool) { return 0, strings.Contains(output, "00000-") }
	outcome, err := r.Work(t.Context(), w)
	if err != nil || !outcome.Complete || fmt.Sprint(outcome.Computed) != "[1 0]" {
		t.Fatalf("%+v, %v", outcome, err)
	}
	if err := <-slow; err != nil {
		t.Errorf("the slow process: %v", err)
	}
	checkMerged(t, r)
}

// TestNoCopy: processes that may not compute copies, or would not be faster, leave.
func TestNoCopy(t *testing.T) {
	may := func(string) (int64, bool) { return 0, true }
	for name, change := range map[string]func(*Work){
		"no copies":     func(w *Work) { w.Copy = nil },
		"not allowed":   func(w *Work) { w.Copy = func(string) (int64, bool) { return 0, false } },
		"no claims":     func(w *Work) { w.NoClaim = true },
		"not faster":    func(w *Work) { w.Compute = compute }, // its rate is unknown
		"little faster": func(w *Work) { w.Compute = littleFaster },
	} {
		r := newRun(t, 2, 20)
		proceed := make(chan struct{})
		slow := startSlow(t, r, proceed)
		w := fast(1, quick)
		w.Copy = may
		change(&w)
		outcome, err := r.Work(t.Context(), w)
		if err != nil || outcome.Complete || fmt.Sprint(outcome.Computed) != "[1]" {
			t.Errorf("%s: %+v, %v", name, outcome, err)
		}
		close(proceed)
		if err := <-slow; err != nil {
			t.Errorf("%s: the slow process: %v", name, err)
		}
		checkMerged(t, r)
	}
}

// littleFaster is not fast enough for a copy: 10 records in 80 s, where 9 take 90 s.
func littleFaster(ctx context.Context, a *Attempt) (Result, error) {
	result, err := compute(ctx, a)
	result.Rate = 1.0 / 8
	return result, err
}

// TestCopyFails: a copy that fails, or is stopped, leaves the shard to the process that
// computes it, and is not repeated.
func TestCopyFails(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Storage, fault.Stopped} {
		r := newRun(t, 2, 20)
		proceed := make(chan struct{})
		slow := startSlow(t, r, proceed)
		w := fast(1, func(ctx context.Context, a *Attempt) (Result, error) {
			if a.Shard == 0 {
				return Result{}, fault.New(kind, "no luck")
			}
			return quick(ctx, a)
		})
		w.Copy = func(string) (int64, bool) { return 0, true }
		if outcome, err := r.Work(t.Context(), w); fault.KindOf(err) != kind {
			t.Errorf("%+v, %v", outcome, err)
		}
		watch := r.Watch(time.Hour)
		shards, err := watch.Shards(t.Context())
		if again := (&worker{Work: w, run: r, watch: watch, rate: 1000}).slowest(shards); again.shard >= 0 {
			t.Errorf("%s: another process would compute a second copy", kind)
		}
		if err != nil || shards[0].State != Running || shards[0].Copy || shards[0].Claims != 2 || shards[0].Message != "" {
			t.Errorf("%s: %+v, %v", kind, shards[0], err)
		}
		close(proceed)
		if err := <-slow; err != nil {
			t.Errorf("%s: the slow process: %v", kind, err)
		}
		checkMerged(t, r)
	}
}

// TestSlowest: which shard gets a copy, and for which one the process waits.
func TestSlowest(t *testing.T) {
	running := func(done int64, rate float64, watched time.Duration) Shard {
		return Shard{State: Running, Records: 100, Done: done, Rate: rate, Claims: 1, current: 1, watched: watched}
	}
	copied, begun := running(0, 0.1, 0), running(0, 0.1, 0)
	copied.Copy, begun.Claims = true, 2
	for name, one := range map[string]struct {
		shards []Shard
		want   choice
	}{
		"nothing runs":           {[]Shard{{State: Done, Records: 100}}, choice{shard: -1}},
		"the slowest":            {[]Shard{running(0, 1, 0), running(50, 0.1, 0), running(90, 0.1, 0)}, choice{shard: 1}},
		"nearly done":            {[]Shard{running(99, 1, 0)}, choice{shard: -1}},
		"as fast":                {[]Shard{running(0, 10, 0)}, choice{shard: -1}},
		"a copy":                 {[]Shard{copied}, choice{shard: -1}},
		"a copy that has failed": {[]Shard{begun}, choice{shard: -1}},
		"it has just begun":      {[]Shard{running(0, 0, time.Second)}, choice{shard: -1, wait: true}},
		"it has not begun yet":   {[]Shard{running(0, 0, 11*time.Second)}, choice{shard: 0}},
	} {
		for i := range one.shards {
			one.shards[i].Index = i
		}
		r := &Run{Dir: "run"}
		w := &worker{run: r, watch: r.Watch(time.Minute), rate: 10}
		w.Copy = func(string) (int64, bool) { return 0, true }
		if got := w.slowest(one.shards); got != one.want {
			t.Errorf("%s: %+v, want %+v", name, got, one.want)
		}
	}
}
