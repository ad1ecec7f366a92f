// Package server serves a job or a host over HTTP: an API, metrics and a page.
//
//	orchestrator ── Event ──► Job ──► view ──► /api/jobs/{id}, /metrics
//	                           └────► feed ──► /api/jobs/{id}/events
//
// Handlers read snapshots that are taken at most once a second, and never wait for a job
// nor make one wait. docs/api.md describes the API for its users; the routes below are
// the source of /openapi.json.
package server

import (
	"net/http"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/web"
)

// MaxConnections is how many connections are served at a time; others wait.
const MaxConnections = 1024

// Backend is what a server shows.
type Backend interface {
	// routes are its part of the API.
	routes() []route
	// ready reports whether it can answer.
	ready() bool
}

// New returns the handler of everything that a backend has to show.
func New(access Access, backend Backend, m *metrics.Metrics) http.Handler {
	return access.guard(newMux(backend, m))
}

// NewSocket returns the API of a job for the job's private socket, which needs no guard but
// against large bodies.
func NewSocket(job *Job) http.Handler { return brief(http.MaxBytesHandler(newMux(job, nil), maxBody)) }

func newMux(backend Backend, m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	var routes []route
	document := sync.OnceValue(func() []byte { return encode(openAPI(routes)) }) // few jobs are asked for it
	routes = append(backend.routes(),
		route{pattern: "GET /openapi.json", summary: "Get this document", answer: object{},
			handler: func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, document()) }},
		route{pattern: "GET /healthz", summary: "Check that the server answers", answer: "text/plain",
			handler: func(w http.ResponseWriter, _ *http.Request) { text(w, "ok") }},
		route{pattern: "GET /readyz", summary: "Check that the server can show something", answer: "text/plain",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				if backend.ready() {
					text(w, "ok")
				} else {
					fail(w, http.StatusServiceUnavailable, "the server has just started and has nothing to show yet")
				}
			}})
	if m != nil {
		routes = append(routes, route{pattern: "GET /metrics", summary: "Get Prometheus metrics", answer: "text/plain", handler: m.Handler().ServeHTTP})
		page := web.Handler()
		mux.Handle("GET /{$}", page)
		mux.Handle("GET /assets/{name}", page)
	}
	for _, r := range routes {
		mux.HandleFunc(r.pattern, r.handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		refused := &refusal{ResponseWriter: w}
		handler.ServeHTTP(refused, r)
		fail(w, refused.status, "%s; see /openapi.json", strings.ToLower(http.StatusText(refused.status)))
	})
}

// refusal keeps the status and the headers of a response, but not its text.
type refusal struct {
	http.ResponseWriter
	status int
}

func (r *refusal) WriteHeader(status int)      { r.status = status }
func (r *refusal) Write(p []byte) (int, error) { return len(p), nil }

func text(w http.ResponseWriter, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(line + "\n"))
}
