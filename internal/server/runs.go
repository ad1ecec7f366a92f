package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/cluster"
)

// runInterval is how often the folder of a run is read.
const runInterval = 2 * time.Second

// RunState is a job that machines share, as its folder shows it.
type RunState struct {
	cluster.Overview
	// Trouble is why the folder cannot be read; the rest is then what was read last.
	Trouble string `json:"trouble,omitempty"`
}

// RunList lists runs.
type RunList struct {
	Runs []RunState `json:"runs"`
}

// watchedRun is a run that the server shows. Its folder may be on a network file system
// that hangs, so that only its own goroutine reads it.
type watchedRun struct {
	watch *cluster.Watch
	state atomic.Pointer[RunState]
}

// ShowRuns makes the host show runs; call it before Run.
func (h *Host) ShowRuns(list []*cluster.Watch) {
	for _, watch := range list {
		h.runs = append(h.runs, &watchedRun{watch: watch})
	}
}

// run reads the folder until ctx ends.
func (r *watchedRun) run(ctx context.Context) {
	for {
		r.look(ctx)
		select {
		case <-time.After(runInterval):
		case <-ctx.Done():
			return
		}
	}
}

func (r *watchedRun) look(ctx context.Context) {
	overview, err := r.watch.Overview(ctx)
	if ctx.Err() != nil {
		return
	}
	next := RunState{Overview: overview}
	if err != nil {
		if last := r.state.Load(); last != nil {
			next = *last
		}
		next.Trouble = err.Error()
	}
	r.state.Store(&next)
}

// runStates returns the runs that were read.
func (h *Host) runStates() []RunState {
	list := []RunState{}
	for _, r := range h.runs {
		if state := r.state.Load(); state != nil {
			list = append(list, *state)
		}
	}
	return list
}

// runRoute is the route of the runs.
func (h *Host) runRoute() route {
	return route{pattern: "GET /api/runs", summary: "List the jobs that machines share, with their shards and nodes", answer: RunList{},
		handler: func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, RunList{Runs: h.runStates()}) }}
}

// runMetrics returns the runs for metrics.
func (h *Host) runMetrics() (list []cluster.Overview) {
	for _, state := range h.runStates() {
		list = append(list, state.Overview)
	}
	return list
}
