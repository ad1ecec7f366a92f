package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

const (
	// maxBody is far more than any request needs.
	maxBody = 64 << 10
	// trimTime limits a response that waits for the end of a batch.
	trimTime = time.Minute
)

// Job controls a running job. Its methods are safe for concurrent use and may be called at
// any time.
type Job interface {
	Snapshot() orchestrator.Snapshot
	Pause() bool
	Resume() bool
	// Cancel stops the job as a signal would; a second call stops it immediately.
	Cancel()
	Trim(context.Context) []orchestrator.Trimmed
}

// Status is a job and its status.
type Status struct {
	Job    Entry                 `json:"job"`
	Status orchestrator.Snapshot `json:"status"`
	// Trouble explains why the status is missing.
	Trouble string `json:"trouble,omitempty"`
}

// handler serves a job's API.
type handler struct {
	entry Entry
	job   Job
}

func newHandler(entry Entry, job Job, api http.Handler) http.Handler {
	h := &handler{entry: entry, job: job}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", h.answer(func(context.Context) any { return h.status() }))
	mux.HandleFunc("POST /v1/pause", h.answer(func(context.Context) any { job.Pause(); return h.status() }))
	mux.HandleFunc("POST /v1/resume", h.answer(func(context.Context) any { job.Resume(); return h.status() }))
	mux.HandleFunc("POST /v1/cancel", h.answer(func(context.Context) any { job.Cancel(); return h.status() }))
	mux.HandleFunc("POST /v1/trim", h.answer(h.trim))
	if api != nil {
		mux.Handle("/", api)
	}
	return bounded(mux)
}

func (h *handler) status() Status { return Status{Job: h.entry, Status: h.job.Snapshot()} }

func (h *handler) trim(ctx context.Context) any {
	ctx, cancel := context.WithTimeout(ctx, trimTime)
	defer cancel()
	return struct {
		Workers []orchestrator.Trimmed `json:"workers"`
	}{h.job.Trim(ctx)}
}

// answer returns a handler that responds with the result of respond.
func (h *handler) answer(respond func(context.Context) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Drain the body, or it would be read as the next request; bounded limits it.
		var tooLarge *http.MaxBytesError
		if _, err := io.Copy(io.Discard, r.Body); errors.As(err, &tooLarge) {
			http.Error(w, "request body too large", http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "read request body: "+err.Error(), http.StatusBadRequest)
			return
		}
		data, err := json.Marshal(respond(r.Context()))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(data, '\n'))
	}
}

// bounded limits the size of request bodies.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}
