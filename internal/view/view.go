// Package view derives the state of a job from its events: counts, rates, workers,
// devices, failures, history. The API, the metrics and the page show it.
//
//	orchestrator ── Event ──► Collector ──► View, History
//
// A Collector's memory is bounded by the number of workers and devices, not by the number
// of records, events or hours.
package view

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/orchestrator"
)

// View is a job at one moment. It is a value: nothing in it changes.
type View struct {
	Time  time.Time `json:"time"`
	Phase Phase     `json:"phase"`
	// Started is when the job was planned; zero before. Folder is its job folder, "" before and
	// if it has none.
	Started time.Time `json:"started,omitzero"`
	Folder  string    `json:"folder,omitempty"`
	Elapsed float64   `json:"elapsed_seconds"`
	// Total is the number of records, -1 while unknown. Done counts those of earlier runs
	// too, Resumed only those.
	Total int64 `json:"total"`
	// Estimate is about how many there are while Total is unknown; 0 if nothing can be said.
	Estimate int64 `json:"estimate,omitempty"`
	// Done includes the records of chunks in progress, Finished only records of finished chunks:
	// what a worker has computed of a chunk is lost with it, so Done may fall.
	Done     chunk.Counts `json:"done"`
	Finished chunk.Counts `json:"finished"`
	Resumed  int64        `json:"resumed"`
	// ResumedAnswers were logged by earlier runs, in addition to Resumed.
	ResumedAnswers int64 `json:"resumed_answers,omitempty"`
	// Answers of further records are logged and wait for slower records before them: they are
	// not computed again. Only a kernel that computes records one by one has such; Concurrency
	// is how many records it computes at a time, 0 for other kernels.
	Answers     int64 `json:"answers"`
	Concurrency int   `json:"concurrency,omitempty"`
	// Rate is the rate of the last half minute, AverageRate the rate of this run since its first chunk
	// began: how long a model loads says nothing about the rest. Answers count when they are logged.
	Rate        float64 `json:"records_per_second"`
	AverageRate float64 `json:"average_records_per_second"`
	// ETA is how long the rest takes at that rate; nil while unknown.
	ETA       *float64 `json:"eta_seconds"`
	BatchSize int      `json:"batch_size"`
	// Latency summarizes Batches, the durations of batches; Segments are the durations of
	// committed segments.
	Latency  *orchestrator.Latency  `json:"batch_latency"`
	Batches  orchestrator.Histogram `json:"batch_durations"`
	Segments orchestrator.Histogram `json:"segment_durations"`
	Workers  []Worker               `json:"workers"`
	Devices  []Device               `json:"devices"`
	// Failures are the failed records by cause, most frequent first;
	// FailuresByKind counts them all.
	Failures       []Failure        `json:"failures"`
	FailuresByKind map[string]int64 `json:"failures_by_kind"`
	// Figures are further counts by name: what kernels count in all runs, such as requests
	// and prompt_tokens, and others of this run. TokenRate is how many tokens were generated per second in the last half
	// minute, or in this run if it has ended; if none are generated, how many were used.
	Figures   map[string]float64 `json:"figures"`
	TokenRate float64            `json:"tokens_per_second"`
	Strip     Strip              `json:"strip"`
	// Timeline is what happened besides progress, oldest first, also in earlier runs.
	Timeline []Moment `json:"timeline"`
	// Report is set once the job has ended.
	Report *orchestrator.Report `json:"report,omitempty"`
}

// New returns the view of a job of which nothing is known yet but its phase.
func New(p Phase) View {
	return View{
		Phase: p, Total: -1, Workers: []Worker{}, Devices: []Device{}, Failures: []Failure{}, FailuresByKind: map[string]int64{}, Figures: map[string]float64{},
	}
}

// end sets the counts of a report.
func (v *View) end(report *orchestrator.Report) {
	v.Phase, v.Report, v.Answers = PhaseEnded, report, report.Answers
	if v.Total = report.In; report.Uncounted {
		v.Total = -1
	}
	v.Done = chunk.Counts{
		Records: report.In - report.Pending, Succeeded: report.Succeeded, Failed: report.Failed, Dropped: report.Dropped,
	}
}

// Reached counts the records that are done or have an answer: how far the job is.
func (v View) Reached() int64 { return v.Done.Records + v.Answers }

// Size returns how many records there are, -1 if that is unknown. about means that it is an
// estimate.
func (v View) Size() (records int64, about bool) {
	if v.Total < 0 && v.Estimate > 0 {
		return max(v.Estimate, v.Reached()), true
	}
	return v.Total, false
}

// AllIn reports whether every worker that the job still has is in this phase.
func (v View) AllIn(p Phase) bool {
	found := false
	for _, w := range v.Workers {
		if w.Phase != p && w.Phase != PhaseRetired && w.Phase != PhaseLeft {
			return false
		}
		found = found || w.Phase == p
	}
	return found
}

// DevicesOf returns the devices of a worker, the one that it is named after first.
func (v View) DevicesOf(w Worker) (list []Device) {
	for _, d := range v.Devices {
		if d.Device == w.Device || d.UUID != "" && slices.Contains(w.GPUs, d.UUID) {
			list = append(list, d)
		}
	}
	return list
}

// Worker is one slot.
type Worker struct {
	Slot int `json:"slot"`
	// Name is the slot's label, Device its device's: several slots may share one.
	Name   string `json:"name"`
	Device string `json:"device"`
	// GPUs are the UUIDs of its devices, where known.
	GPUs  []string `json:"gpus,omitempty"`
	PID   int      `json:"pid,omitempty"`
	Phase Phase    `json:"phase"`
	// First, Records and Done describe its chunk, or the last one if it waits, or all of its
	// chunks if the kernel computes records one by one; Records is 0 if there is none.
	First   int64 `json:"chunk_first"`
	Records int64 `json:"chunk_records"`
	Done    int64 `json:"chunk_done"`
	// Again counts the records that were lost with its last process and are computed again, until
	// a while after that has begun.
	Again int64 `json:"again,omitempty"`
	// Total counts the records that it has computed in this run, also those that were lost, and
	// Failed the failed ones of its finished chunks.
	Total  int64 `json:"records"`
	Failed int64 `json:"failed"`
	// Restarts counts kernel processes started after one died, Retries batches computed
	// again, Lost workers that were replaced.
	Batches  int64 `json:"batches"`
	Restarts int64 `json:"restarts"`
	Retries  int64 `json:"retries"`
	Lost     int64 `json:"lost"`
	// Load is how long the kernel last took to open, Busy how long it computed.
	Load time.Duration `json:"load_ns"`
	Busy time.Duration `json:"busy_ns"`

	awaits orchestrator.Awaits // what its kernel waits for
	start  orchestrator.Start  // of its kernel
	began  time.Time           // its chunk
	idle   time.Time           // when it finished its last chunk
}

// Device is one device of the job and its last sample, if it is a monitored GPU.
type Device struct {
	UUID string `json:"uuid,omitempty"`
	Name string `json:"name,omitempty"`
	// ID is its index, or GPU:INSTANCE of a MIG instance; empty in past jobs.
	ID  string `json:"id,omitempty"`
	GPU bool   `json:"gpu"`
	// Rate is in records per second, of the last half minute; Records counts all that it has
	// computed, also those that were lost with a worker and are computed again.
	Rate    float64 `json:"records_per_second"`
	Records int64   `json:"records"`
	// Batches are the durations of its batches.
	Batches orchestrator.Histogram `json:"batch_durations"`
	// Sampled is when the last sample was taken; zero if never. State is empty then.
	Sampled time.Time `json:"sampled,omitzero"`
	State   string    `json:"state,omitempty"`
	orchestrator.DeviceSample

	work *growth // of Records
}

// newDevice returns a device that was never sampled.
func newDevice(label string) Device {
	return Device{DeviceSample: orchestrator.DeviceSample{Device: label, Pace: 1}}
}

// Failure is the failed records of one cause, with the traceback of the first.
type Failure = orchestrator.FailureReport
