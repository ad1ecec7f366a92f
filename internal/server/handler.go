package server

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
	// maxBody is far more than any request here has to say.
	maxBody = 64 << 10
	// answerTime bounds an answer, and trimTime one that waits for a batch border.
	answerTime = 10 * time.Second
	trimTime   = time.Minute
)

// Job is what can be done to a running job. The methods may be called at any time,
// from several goroutines.
type Job interface {
	Snapshot() orchestrator.Snapshot
	Pause() bool
	Resume() bool
	// Cancel stops the job as a signal would; a second time at once.
	Cancel()
	Trim(context.Context) []orchestrator.Trimmed
}

// JobStatus is a job and how it is.
type JobStatus struct {
	Job    Entry                 `json:"job"`
	Status orchestrator.Snapshot `json:"status"`
	// Trouble says why the job did not tell how it is.
	Trouble string `json:"trouble,omitempty"`
}

// handler is a job's API.
type handler struct {
	entry  Entry
	job    Job
	events *Events
}

// NewHandler answers for a job: on its socket, or wherever else it is put.
func NewHandler(entry Entry, job Job, events *Events) http.Handler {
	h := &handler{entry: entry, job: job, events: events}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", h.answer(func(context.Context) any { return h.status() }))
	mux.HandleFunc("POST /v1/pause", h.answer(func(context.Context) any { job.Pause(); return h.status() }))
	mux.HandleFunc("POST /v1/resume", h.answer(func(context.Context) any { job.Resume(); return h.status() }))
	mux.HandleFunc("POST /v1/cancel", h.answer(func(context.Context) any { job.Cancel(); return h.status() }))
	mux.HandleFunc("POST /v1/trim", h.answer(h.trim))
	mux.HandleFunc("GET /v1/events", h.stream)
	return bounded(mux)
}

func (h *handler) status() JobStatus { return JobStatus{Job: h.entry, Status: h.job.Snapshot()} }

func (h *handler) trim(ctx context.Context) any {
	ctx, cancel := context.WithTimeout(ctx, trimTime)
	defer cancel()
	return struct {
		Workers []orchestrator.Trimmed `json:"workers"`
	}{h.job.Trim(ctx)}
}

// answer makes a handler of what is to be said.
func (h *handler) answer(say func(context.Context) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// All of it, or it would be read as the next request; no more than maxBody.
		var tooLarge *http.MaxBytesError
		if _, err := io.Copy(io.Discard, r.Body); errors.As(err, &tooLarge) {
			http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "read the body: "+err.Error(), http.StatusBadRequest)
			return
		}
		data, err := json.Marshal(say(r.Context()))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// Now: to ask for memory takes its time.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(data, '\n'))
	}
}

// bounded cuts bodies off.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}
