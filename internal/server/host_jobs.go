package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// jobTime is how long a job may take to respond before it is shown without a state.
const jobTime = 2 * time.Second

// routes implements Backend.
func (h *Host) routes() []route {
	system := route{pattern: "GET /api/system/status", summary: "Get the host as a whole", answer: success[SystemStatus]{},
		handler: systemStatus(h.gpus, h.overview.Load)}
	handlers := map[string]http.HandlerFunc{"": h.list, "state": h.state}
	for _, name := range []string{"history", "failures", "events", "pause", "resume", "cancel"} {
		handlers[name] = h.forward
	}
	return append(append(jobRoutes(handlers), h.gpus.routes()...), system)
}

// askJobs gets the states of jobs concurrently: a stopped job must not delay the others.
func askJobs(ctx context.Context, entries []jobs.Entry) []JobState {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	states := make([]JobState, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() {
			data, err := jobs.NewClient(e).Get(ctx, "/api/jobs/"+e.ID)
			if err == nil {
				err = json.Unmarshal(data, &states[i])
			}
			if err != nil {
				states[i] = JobState{Job: infoOf(e), View: view.View{Total: -1}, Trouble: err.Error()}
			}
		})
	}
	all.Wait()
	return states
}

// list lists running jobs, then past ones, the latest first.
func (h *Host) list(w http.ResponseWriter, _ *http.Request) {
	all := JobList{Jobs: []JobSummary{}}
	for _, s := range h.jobs.get() {
		all.Jobs = append(all.Jobs, s.Summary())
	}
	past := jobs.Past()
	slices.Reverse(past)
	for _, p := range past {
		all.Jobs = append(all.Jobs, pastState(p).Summary())
	}
	answer(w, http.StatusOK, all)
}

// pastState is what is known about a job that has ended.
func pastState(p jobs.Ended) JobState {
	s := JobState{Job: infoOf(p.Entry), Trouble: p.Error}
	s.Phase, s.Total, s.Done = orchestrator.PhaseEnded, p.Status.Total, p.Status.Done
	if p.Error != "" {
		s.Total = -1
	}
	s.Time, s.Started = p.Ended, p.Started
	s.Elapsed = p.Ended.Sub(p.Started).Seconds()
	s.Workers, s.Devices, s.Failures = []view.Worker{}, []view.Device{}, []view.Failure{}
	s.FailuresByKind, s.Figures = map[string]int64{}, map[string]float64{}
	return s
}

// state serves a running job's state, or the report of a past one.
func (h *Host) state(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	for _, p := range jobs.Past() {
		if p.ID != id {
			continue
		}
		s := pastState(p)
		if status, err := orchestrator.Inspect(p.Output, ""); err == nil && status.Report.Started.Sub(p.Started).Abs() < time.Minute {
			s.Report = &status.Report
			s.Latency = status.Report.Latency
			s.Done = chunk.Counts{
				Records: status.Report.In - status.Report.Pending, Succeeded: status.Report.Succeeded,
				Failed: status.Report.Failed, Dropped: status.Report.Dropped,
			}
		}
		answer(w, http.StatusOK, s)
		return
	}
	h.forward(w, r)
}

// forward passes a request about a running job on to the job.
func (h *Host) forward(w http.ResponseWriter, r *http.Request) {
	entries := h.entries.get()
	i := slices.IndexFunc(entries, func(e jobs.Entry) bool { return e.ID == r.PathValue("id") })
	if i < 0 {
		fail(w, http.StatusNotFound, "no job %q is running", r.PathValue("id"))
		return
	}
	e := entries[i]
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
