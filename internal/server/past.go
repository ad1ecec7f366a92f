package server

import (
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// pastHandler serves a request about a job that has ended.
type pastHandler func(http.ResponseWriter, *http.Request, jobs.Ended)

// newPastState is what is remembered of a job.
func newPastState(p jobs.Ended) jobs.State {
	s := jobs.State{Job: p.Info, View: view.New(view.PhaseEnded), Trouble: p.Error}
	if s.Done, s.Answers = p.Done, p.Answers; p.Error == "" {
		s.Total = p.Total
	}
	s.Time, s.Started, s.Elapsed = p.Ended, p.Started, p.Ended.Sub(p.Started).Seconds()
	return s
}

func (h *Host) pastState(w http.ResponseWriter, _ *http.Request, p jobs.Ended) {
	s := newPastState(p)
	if recorded, ok := h.recorded.get(p); ok {
		s.View = recorded.View
	}
	answer(w, http.StatusOK, s)
}

func (h *Host) pastHistory(w http.ResponseWriter, _ *http.Request, p jobs.Ended) {
	recorded, _ := h.recorded.get(p)
	answer(w, http.StatusOK, recorded.History)
}

func pastFailures(w http.ResponseWriter, r *http.Request, p jobs.Ended) {
	if status, ok := inspect(p); ok {
		servePage(w, r, view.FailuresPath(status.Folder))
		return
	}
	fail(w, http.StatusNotFound, "the folder of job %s was removed, or another job has used it since", p.ID)
}

// pastNothing refuses what only a running job can do.
func pastNothing(w http.ResponseWriter, _ *http.Request, p jobs.Ended) {
	fail(w, http.StatusConflict, "job %s has ended", p.ID)
}

// inspect returns the state of a job's folder; false if it is gone, or another job with the
// same output has run since.
func inspect(p jobs.Ended) (orchestrator.Status, bool) {
	same := func(e jobs.Entry) bool { return e.Output == p.Output && e.Started.After(p.Started) }
	if slices.ContainsFunc(jobs.List(), same) || slices.ContainsFunc(jobs.Past(), func(o jobs.Ended) bool { return same(o.Entry) }) {
		return orchestrator.Status{}, false
	}
	workDir := ""
	if folder := p.Folder; folder != "" && filepath.Dir(folder) != filepath.Dir(p.Output) {
		workDir = filepath.Dir(folder)
	}
	status, err := orchestrator.Inspect(p.Output, workDir)
	return status, err == nil && status.State != orchestrator.Running
}

// recordings keeps the last job that was read from its folder, which may take long, for
// the page that shows it.
type recordings struct {
	mu       sync.Mutex
	id       string
	until    time.Time
	recorded view.Recorded
	ok       bool
}

func (r *recordings) get(p jobs.Ended) (view.Recorded, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == p.ID && time.Now().Before(r.until) {
		return r.recorded, r.ok
	}
	r.id, r.recorded = p.ID, view.Recorded{}
	status, ok := inspect(p)
	if r.ok = ok; ok {
		r.recorded = view.Record(status)
	}
	r.until = time.Now().Add(10 * time.Second)
	return r.recorded, r.ok
}
