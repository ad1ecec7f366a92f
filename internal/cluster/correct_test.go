package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestCorrectedOnce: of several processes that correct a run, one decides, and nothing of the
// wrong run counts.
func TestCorrectedOnce(t *testing.T) {
	r := newRun(t, 2, 10)
	broken := fault.New(fault.Incompatible, "no such kernel")
	_, err := r.Work(t.Context(), Work{Compute: func(context.Context, *Attempt) (Result, error) { return Result{}, broken }})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	corrected := make([]*Run, 8)
	for i := range corrected {
		wait.Go(func() {
			run, err := r.Correct(Manifest{Output: r.Output, Format: "jsonl", Shards: 3 + i, Records: 10})
			if err != nil {
				t.Error(err)
			}
			corrected[i] = run
		})
	}
	wait.Wait()
	now, err := Open(r.Output)
	if err != nil || now.ID == r.ID || now.Output != r.Output {
		t.Fatalf("%+v, %v", now, err)
	}
	for _, run := range corrected {
		if run == nil || run.ID != now.ID || run.Dir != now.Dir {
			t.Errorf("%+v, but the run is %+v", run, now)
		}
	}
	if wrong, err := now.Corrected(); err != nil || len(wrong) != 1 || wrong[0].ID != r.ID {
		t.Errorf("corrected: %+v, %v", wrong, err)
	}
	overview, err := now.Watch(0).Overview(t.Context())
	if err != nil || overview.Claimed() || overview.Count(Pending) != now.Shards {
		t.Errorf("%+v, %v", overview, err)
	}
	// What a late process of the wrong run commits stays there.
	if err := os.WriteFile(filepath.Join(r.Dir, commitsDir, key(0)+".json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if overview, err := now.Watch(0).Overview(t.Context()); err != nil || overview.Count(Done) != 0 {
		t.Errorf("%+v, %v", overview, err)
	}
}

// TestCheckIdle: neither computed nor running shards may be corrected.
func TestCheckIdle(t *testing.T) {
	for state, idle := range map[State]bool{Pending: true, Failed: true, Stopped: true, Lost: true, Running: false, Done: false} {
		o := Overview{Shards: []Shard{{State: Failed}, {State: state}}}
		if got := o.CheckIdle() == nil; got != idle {
			t.Errorf("%s: %v", state, got)
		}
	}
}
