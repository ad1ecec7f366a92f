package cluster

import (
	"context"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestRateKnowsItsMachines: a machine that begins its next shard is as fast as before.
func TestRateKnowsItsMachines(t *testing.T) {
	for name, one := range map[string]struct {
		shards []Shard
		want   float64
	}{
		"nothing known": {[]Shard{{State: Running, Host: "a"}, {State: Pending}}, 0},
		"the first":     {[]Shard{{State: Running, Host: "a", Done: 50, Rate: 100}}, 100},
		"the next of one machine": {[]Shard{
			{State: Done, Host: "a", Done: 100, Rate: 100}, {State: Running, Host: "a"},
		}, 100},
		"another machine has just begun": {[]Shard{
			{State: Running, Host: "a", Done: 100, Rate: 100}, {State: Running, Host: "b"},
		}, 200},
		"unequal machines": {[]Shard{
			{State: Done, Host: "a", Done: 100, Rate: 100}, {State: Done, Host: "b", Done: 100, Rate: 10},
			{State: Running, Host: "a", Done: 1, Rate: 100}, {State: Running, Host: "b"},
		}, 110},
		"none runs": {[]Shard{{State: Done, Host: "a", Done: 100, Rate: 100}, {State: Pending}}, 0},
	} {
		if got := totalRate(one.shards); got < one.want-0.01 || got > one.want+0.01 {
			t.Errorf("%s: %g, want %g", name, got, one.want)
		}
	}
}

// TestCommittedCounts: what an attempt has committed counts, not what it last reported.
func TestCommittedCounts(t *testing.T) {
	r := newRun(t, 1, 100)
	_, err := r.Work(t.Context(), Work{Compute: func(ctx context.Context, a *Attempt) (Result, error) {
		w := r.Watch(0)
		for _, one := range []struct{ committed, want int64 }{{0, 0}, {70, 70}, {40, 40}} {
			w.Committed = func(output string) (int64, int64) {
				if output != a.Output() {
					t.Errorf("asked for %s, not %s", output, a.Output())
				}
				return one.committed, 0
			}
			if o, err := w.Overview(ctx); err != nil || o.Done != one.want {
				t.Errorf("running, %d committed: %d done, %v", one.committed, o.Done, err)
			}
		}
		return Result{}, fault.New(fault.Stopped, "stopped")
	}})
	if fault.KindOf(err) != fault.Stopped {
		t.Fatal(err)
	}
	w := r.Watch(0)
	w.Committed = func(string) (int64, int64) { return 30, 5 }
	if o, err := w.Overview(t.Context()); err != nil || o.Done != 30 || o.Answers != 5 {
		t.Errorf("stopped: %+v, %v", o, err)
	}
}
