package server

import (
	"net/http"
	"net/http/httputil"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/jobs"
)

// routes implements Backend.
func (h *Host) routes() []route {
	handlers := map[string]http.HandlerFunc{
		"": h.list, "state": h.running(h.pastState), "history": h.running(h.pastHistory), "failures": h.running(pastFailures),
	}
	for _, name := range []string{"events", "pause", "resume", "cancel", "trim"} {
		handlers[name] = h.running(pastNothing)
	}
	return slices.Concat(jobRoutes(handlers), h.gpus.routes(), []route{h.gpus.systemRoute(h.current.get), h.runRoute()})
}

// list lists running jobs, then past ones, the latest first.
func (h *Host) list(w http.ResponseWriter, _ *http.Request) {
	all := JobList{Jobs: []JobSummary{}}
	for _, s := range h.jobs.get() {
		all.Jobs = append(all.Jobs, summary(s))
	}
	past := jobs.Past()
	slices.Reverse(past)
	for _, p := range past {
		all.Jobs = append(all.Jobs, summary(newPastState(p)))
	}
	answer(w, http.StatusOK, all)
}

// running passes requests about running jobs on to them, whose responses are cached; past serves
// those about others.
func (h *Host) running(past pastHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		for _, e := range jobs.List() {
			if e.ID == id {
				forward(w, r, e)
				if r.Method != http.MethodGet {
					h.jobs.drop() // it shows the change at once
				}
				return
			}
		}
		for _, p := range jobs.Past() {
			if p.ID == id {
				past(w, r, p)
				return
			}
		}
		fail(w, http.StatusNotFound, "no job %q here", id)
	}
}

// forward passes a request on to a job.
func forward(w http.ResponseWriter, r *http.Request, e jobs.Entry) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // an event stream has no end
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "job", "job"
			p.Out.Header.Del("Authorization")
		},
		Transport: jobs.NewClient(e).Transport(), FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			fail(w, http.StatusBadGateway, "job %s does not respond: it may be just ending", e.ID)
		},
	}
	proxy.ServeHTTP(w, r)
}
