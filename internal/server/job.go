package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// Job serves the API of a job of this process.
type Job struct {
	entry   jobs.Entry
	control Control
	gpus    *gpuAPI
	view    *view.Collector
	feed    *Feed
	// current is for metrics; state and history are encoded for all clients.
	current *cached[jobs.State]
	state   *cached[[]byte]
	history *cached[[]byte]
}

// JobList is the response about all jobs.
type JobList struct {
	Jobs []JobSummary `json:"jobs"`
}

// JobSummary is a line about a job.
type JobSummary struct {
	Job     jobs.Info    `json:"job"`
	Phase   view.Phase   `json:"phase"`
	Total   int64        `json:"total"`
	Done    chunk.Counts `json:"done"`
	Answers int64        `json:"answers"`
	Rate    float64      `json:"records_per_second"`
	ETA     *float64     `json:"eta_seconds"`
	Trouble string       `json:"trouble,omitempty"`
}

func summary(s jobs.State) JobSummary {
	return JobSummary{Job: s.Job, Phase: s.Phase, Total: s.Total, Done: s.Done, Answers: s.Answers, Rate: s.Rate, ETA: s.ETA, Trouble: s.Trouble}
}

// Trim is the response to a request to free memory.
type Trim struct {
	Workers []orchestrator.Trimmed `json:"workers"`
}

// Control is how a job of this process is controlled. Its methods are safe for concurrent
// use and may be called at any time.
type Control interface {
	Pause() bool
	Resume() bool
	// Cancel stops the job as a signal would; a second call stops it immediately.
	Cancel()
	Trim(context.Context) []orchestrator.Trimmed
	// MonitorSettings and ConfigureMonitor: see orchestrator.Control.
	MonitorSettings() map[string]any
	ConfigureMonitor(map[string]any) error
}

// NewJob returns the API of a job of this process, whose events the collector follows.
func NewJob(entry jobs.Entry, control Control, v *view.Collector) *Job {
	j := &Job{entry: entry, control: control, view: v, feed: NewFeed(entry.ID)}
	j.gpus = &gpuAPI{
		book:     &book{recent: gpu.DefaultConfig().HistorySize},
		settings: j.settings, configure: control.ConfigureMonitor,
		allocation: func(gpuID) *AllocationStats { return nil },
	}
	j.current = newCached(j.State)
	j.state = newCached(func() []byte { return encode(j.State()) })
	j.history = newCached(func() []byte { return encode(j.view.History()) })
	return j
}

// settings returns the settings of the job's monitor; none if no GPU is monitored.
func (j *Job) settings() map[string]any {
	if settings := j.control.MonitorSettings(); settings != nil {
		return settings
	}
	return map[string]any{}
}

// Event passes the job's next event, which its view has, on to those who listen. It never blocks.
func (j *Job) Event(e orchestrator.Event) {
	j.feed.Event(e)
	sample, ok := e.(orchestrator.DeviceSample)
	if !ok {
		return
	}
	for _, d := range j.view.View().Devices {
		if d.Device == sample.Device && d.GPU {
			r := newReading(d.Sampled, d.Sample)
			r.ID, r.UUID, r.Name, r.State, r.Problem, r.pace = gpuID(d.ID), d.UUID, d.Name, d.State, d.Problem, d.Pace
			j.gpus.book.add(r)
		}
	}
}

// Close sends listeners the last events and ends them.
func (j *Job) Close() {
	j.feed.Close()
	j.current.drop()
}

// State returns the job's current state.
func (j *Job) State() jobs.State { return jobs.State{Job: j.entry.Info, View: j.view.View()} }

// ready implements Backend.
func (j *Job) ready() bool { return true }

// routes implements Backend.
func (j *Job) routes() []route {
	list := func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, JobList{Jobs: []JobSummary{summary(j.State())}})
	}
	state := func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, j.state.get()) }
	history := func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, j.history.get()) }
	none := func() *host.Overview { return nil }
	return slices.Concat(jobRoutes(map[string]http.HandlerFunc{
		"":         list,
		"state":    j.only(state),
		"history":  j.only(history),
		"failures": j.only(j.failures),
		"events":   j.only(j.feed.serve),
		"pause":    j.steer(func() { j.control.Pause() }),
		"resume":   j.steer(func() { j.control.Resume() }),
		"cancel":   j.steer(j.control.Cancel),
		"trim":     j.only(j.trim),
	}), j.gpus.routes(), []route{j.gpus.systemRoute(none)})
}

// jobRoutes are the routes of jobs, with their handlers by name.
func jobRoutes(h map[string]http.HandlerFunc) []route {
	const job = "/api/jobs/{id}"
	return []route{
		{pattern: "GET /api/jobs", summary: "List jobs", answer: JobList{}, handler: h[""]},
		{pattern: "GET " + job, summary: "Get the state of a job", answer: jobs.State{}, handler: h["state"]},
		{pattern: "GET " + job + "/history", summary: "Get the course of a job, for charts", answer: view.History{}, handler: h["history"]},
		{pattern: "GET " + job + "/failures", summary: "List failed records", answer: Page{}, handler: h["failures"], query: []parameter{
			pageAfter, pageLimit,
		}},
		{pattern: "GET " + job + "/events", summary: "Follow the events of a job (server-sent events); Last-Event-ID resumes", answer: "text/event-stream", handler: h["events"]},
		{pattern: "POST " + job + "/pause", summary: "Pause a job after the current batches", answer: jobs.State{}, handler: h["pause"]},
		{pattern: "POST " + job + "/resume", summary: "Resume a paused job", answer: jobs.State{}, handler: h["resume"]},
		{pattern: "POST " + job + "/cancel", summary: "Stop a job so that it can be resumed; a second time, at once", answer: jobs.State{}, handler: h["cancel"]},
		{pattern: "POST " + job + "/trim", summary: "Release device memory that kernels cache but do not use", answer: Trim{}, handler: h["trim"]},
	}
}

// only serves the requests that name this job.
func (j *Job) only(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != j.entry.ID {
			fail(w, http.StatusNotFound, "no job %q here", r.PathValue("id"))
			return
		}
		serve(w, r)
	}
}

// steer changes the job and responds with its new state.
func (j *Job) steer(change func()) http.HandlerFunc {
	return j.only(func(w http.ResponseWriter, r *http.Request) {
		if !drain(w, r) {
			return
		}
		change()
		j.state.drop()
		write(w, http.StatusOK, j.state.get())
	})
}

// trimTime limits a response that waits for the end of a batch.
const trimTime = time.Minute

// trim releases memory, and responds when all workers have.
func (j *Job) trim(w http.ResponseWriter, r *http.Request) {
	if !drain(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), trimTime)
	defer cancel()
	answer(w, http.StatusOK, Trim{Workers: append([]orchestrator.Trimmed{}, j.control.Trim(ctx)...)})
}

// failures serves failed records, a page at a time.
func (j *Job) failures(w http.ResponseWriter, r *http.Request) {
	path := ""
	if folder := j.current.get().Folder; folder != "" {
		path = view.FailuresPath(folder)
	}
	servePage(w, r, path)
}
