package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// Job is a job of this process: it follows the job's events and serves its API.
type Job struct {
	entry   jobs.Entry
	control Control
	gpus    *gpuAPI
	devices map[string]gpu.Device // by label; used by Event only
	view    *view.Collector
	feed    *Feed
	// current is for metrics; state and history are encoded for all clients.
	current *cached[JobState]
	state   *cached[[]byte]
	history *cached[[]byte]
}

// JobInfo identifies a job. It has no command line, which may contain secrets: see brief.go.
type JobInfo struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	PID     int       `json:"pid"`
	Kernel  string    `json:"kernel"`
	Input   string    `json:"input"`
	Output  string    `json:"output"`
	Started time.Time `json:"started"`
}

func infoOf(e jobs.Entry) JobInfo {
	return JobInfo{ID: e.ID, Name: e.Name, PID: e.PID, Kernel: e.Kernel, Input: e.Input, Output: e.Output, Started: e.Started}
}

// JobState is the response about one job.
type JobState struct {
	Job JobInfo `json:"job"`
	view.View
	// Trouble explains why the rest is missing.
	Trouble string `json:"trouble,omitempty"`
}

// JobList is the response about all jobs.
type JobList struct {
	Jobs []JobSummary `json:"jobs"`
}

// JobSummary is a line about a job.
type JobSummary struct {
	Job     JobInfo            `json:"job"`
	Phase   orchestrator.Phase `json:"phase"`
	Total   int64              `json:"total"`
	Done    chunk.Counts       `json:"done"`
	Answers int64              `json:"answers"`
	Rate    float64            `json:"records_per_second"`
	ETA     *float64           `json:"eta_seconds"`
	Trouble string             `json:"trouble,omitempty"`
}

// Summary returns the line about a job.
func (s JobState) Summary() JobSummary {
	return JobSummary{Job: s.Job, Phase: s.Phase, Total: s.Total, Done: s.Done, Answers: s.Answers, Rate: s.Rate, ETA: s.ETA, Trouble: s.Trouble}
}

// Trim is the response to a request to free memory.
type Trim struct {
	Workers []orchestrator.Trimmed `json:"workers"`
}

// Control is how a job of this process is controlled. Its methods are safe for concurrent
// use and may be called at any time.
type Control interface {
	Snapshot() orchestrator.Snapshot
	Pause() bool
	Resume() bool
	// Cancel stops the job as a signal would; a second call stops it immediately.
	Cancel()
	Trim(context.Context) []orchestrator.Trimmed
	// MonitorSettings and ConfigureMonitor are those of orchestrator.Control.
	MonitorSettings() map[string]any
	ConfigureMonitor(map[string]any) error
}

// NewJob returns the API of a job of this process.
func NewJob(entry jobs.Entry, control Control) *Job {
	j := &Job{entry: entry, control: control, view: view.NewCollector(time.Now), feed: NewFeed(entry.ID), devices: make(map[string]gpu.Device)}
	j.gpus = &gpuAPI{book: newBook(), settings: j.settings, configure: control.ConfigureMonitor}
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

func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		return []byte(`{"success":false,"error":"encode the response"}` + "\n")
	}
	return append(data, '\n')
}

// Event takes the job's next event. It never blocks.
func (j *Job) Event(e orchestrator.Event) {
	j.view.Event(e)
	j.feed.Event(e)
	switch e := e.(type) {
	case orchestrator.Planned:
		for _, slot := range e.Plan.Slots {
			for _, d := range slot.Devices {
				j.devices[d.String()] = d
			}
		}
	case orchestrator.DeviceSample:
		r := newReading(time.Now(), j.devices[e.Device], e.State.String())
		r.setSample(e.Utilization, e.Memory, e.Temperature, e.Power)
		r.pace, r.slowdown, r.Problem = e.Pace, e.Slowdown, e.Problem
		j.gpus.book.add(r)
	}
}

// Close sends listeners the last events and ends them.
func (j *Job) Close() {
	j.feed.Close()
	j.current.drop()
}

// State returns the job's current state.
func (j *Job) State() JobState { return JobState{Job: infoOf(j.entry), View: j.view.View()} }

// ready implements Backend.
func (j *Job) ready() bool { return true }

// routes implements Backend.
func (j *Job) routes() []route {
	list := func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, JobList{Jobs: []JobSummary{j.State().Summary()}})
	}
	state := func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, j.state.get()) }
	history := func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, j.history.get()) }
	system := route{pattern: "GET /api/system/status", summary: "Get the host as a whole", answer: success[SystemStatus]{},
		handler: systemStatus(j.gpus, func() *host.Overview { return nil })}
	return append(append(jobRoutes(map[string]http.HandlerFunc{
		"":         list,
		"state":    j.only(state),
		"history":  j.only(history),
		"failures": j.only(j.failures),
		"events":   j.only(j.events),
		"pause":    j.steer(func() { j.control.Pause() }),
		"resume":   j.steer(func() { j.control.Resume() }),
		"cancel":   j.steer(j.control.Cancel),
		"trim":     j.only(j.trim),
	}), j.gpus.routes()...), system)
}

// jobRoutes are the routes of jobs, with their handlers by name.
func jobRoutes(h map[string]http.HandlerFunc) []route {
	const job = "/api/jobs/{id}"
	return []route{
		{pattern: "GET /api/jobs", summary: "List jobs", answer: JobList{}, handler: h[""]},
		{pattern: "GET " + job, summary: "Get the state of a job", answer: JobState{}, handler: h["state"]},
		{pattern: "GET " + job + "/history", summary: "Get the course of a job, for charts", answer: view.History{}, handler: h["history"]},
		{pattern: "GET " + job + "/failures", summary: "List failed records", answer: Page{}, handler: h["failures"], query: []parameter{
			pageAfter, pageLimit,
		}},
		{pattern: "GET " + job + "/events", summary: "Follow the events of a job (server-sent events); Last-Event-ID resumes", answer: "text/event-stream", handler: h["events"]},
		{pattern: "POST " + job + "/pause", summary: "Pause a job after the current batches", answer: JobState{}, handler: h["pause"]},
		{pattern: "POST " + job + "/resume", summary: "Resume a paused job", answer: JobState{}, handler: h["resume"]},
		{pattern: "POST " + job + "/cancel", summary: "Stop a job so that it can be resumed; a second time, at once", answer: JobState{}, handler: h["cancel"]},
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

// events serves the feed. A client that reconnects sends the id of the last event it got.
func (j *Job) events(w http.ResponseWriter, r *http.Request) {
	replay, more, leave, ok := j.feed.Listen(r.Header.Get("Last-Event-ID"))
	if !ok {
		fail(w, http.StatusServiceUnavailable, "too many listeners, or the job has ended")
		return
	}
	defer leave()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the request is complete
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(data []byte) bool {
		_, err := w.Write(data)
		return err == nil && control.Flush() == nil
	}
	for ok = send(append([]byte("retry: 1000\n\n"), replay...)); ok; {
		select {
		case data, open := <-more:
			ok = open && send(data)
		case <-r.Context().Done():
			return
		}
	}
}

// failures serves failed records, a page at a time.
func (j *Job) failures(w http.ResponseWriter, r *http.Request) {
	path := ""
	if folder := j.control.Snapshot().Folder; folder != "" {
		path = view.FailuresPath(folder)
	}
	servePage(w, r, path)
}
