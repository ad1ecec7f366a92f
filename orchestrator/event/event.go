// Package event has what happens in a job, and the values that events, plans and reports consist
// of: slots, the figures of a worker, its state.
package event

import (
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/wire"
)

// Event is something that happened in a job: one of the types below.
type Event = interface {
	// EventName is the name in JSON events.
	EventName() string
}

// WorkerStarted: a worker process is running and opens its kernel.
type WorkerStarted struct {
	Slot   int    `json:"slot"`
	Device string `json:"device"`
	PID    int    `json:"pid"`
}

// WorkerPhase: the worker's kernel starts, and has reached another phase of that.
type WorkerPhase struct {
	Slot   int    `json:"slot"`
	Device string `json:"device"`
	wire.Start
}

// WorkerReady: the worker's kernel is open.
type WorkerReady struct {
	Slot   int           `json:"slot"`
	Device string        `json:"device"`
	Took   time.Duration `json:"took_ns"`
}

// WorkerLost: a worker was lost. Its chunk went back to the queue.
type WorkerLost struct {
	Slot   int          `json:"slot"`
	Device string       `json:"device"`
	Fault  *fault.Error `json:"fault"`
	// Retired: the worker is not replaced for now. RetryAfter is when its device is
	// retried while other workers are computing; 0 if there are no others.
	Retired    bool          `json:"retired"`
	RetryAfter time.Duration `json:"retry_after_ns"`
	// NeedsReset: its device computes nothing correct before it is reset, and gets no work.
	NeedsReset bool `json:"needs_reset,omitempty"`
	// Job and Answers count without what was lost with the worker; see [Progress].
	Job     chunk.Counts `json:"job"`
	Answers int64        `json:"answers,omitempty"`
}

// DeviceRetired: records fail on a device that succeed on another one. It gets no work for the
// rest of the job, and other devices compute what failed on it.
type DeviceRetired struct {
	SickDevice
	// On is the device on which such a record succeeded.
	On     string `json:"on"`
	Detail string `json:"detail,omitempty"`
}

// WorkerLeft: a worker left the job, to make room on a device whose memory it shared with
// others or because its device was retired.
type WorkerLeft struct {
	Slot   int    `json:"slot"`
	Device string `json:"device"`
	// Job and Answers: see [WorkerLost].
	Job     chunk.Counts `json:"job"`
	Answers int64        `json:"answers,omitempty"`
}

// WorkersScaled: gpurun has changed the number of workers of a device, or found that it
// should not.
type WorkersScaled struct {
	ScalingReport
	// From is how many workers there were.
	From int `json:"from"`
	// Settled means that the number stays until something changes.
	Settled bool `json:"settled"`
}

// ChunkStarted: a worker started computing a chunk.
type ChunkStarted struct {
	Slot    int    `json:"slot"`
	Device  string `json:"device"`
	First   int64  `json:"first"`
	Records int64  `json:"records"`
}

// Progress: how far a worker is with its chunk.
type Progress struct {
	Slot   int    `json:"slot"`
	Device string `json:"device"`
	// Chunk counts the finished records of the current chunk; Records is its size.
	Chunk   chunk.Counts `json:"chunk"`
	Records int64        `json:"records"`
	// Job counts the finished records of all chunks, including this one. Answers counts those
	// that have an answer besides, which waits for a slower record before it.
	Job     chunk.Counts `json:"job"`
	Answers int64        `json:"answers,omitempty"`
	// Ahead counts the records of this slot, in any of its chunks, that have an answer and
	// are not in Chunk. Only a kernel that computes records one by one has such.
	Ahead int64 `json:"ahead,omitempty"`
	// Held counts the records of the chunks that this slot computes.
	// Computed counts those that it has computed in this run, also those that were lost with a worker,
	// but no answers of earlier runs.
	Held     int64 `json:"held,omitempty"`
	Computed int64 `json:"computed,omitempty"`
	// Awaits is what keeps the kernel from computing: files, a server, or nothing.
	Awaits wire.Awaits `json:"awaits,omitempty"`
	// Total is the number of records; -1 until a stream has ended. Estimate is then about how
	// many there are, if the sizes of the input files allow that.
	Total    int64 `json:"total"`
	Estimate int64 `json:"estimate,omitempty"`
	// Usage is what kernels count, such as requests and tokens, of all runs of the job; nil if
	// they count nothing.
	Usage map[string]int64 `json:"usage,omitempty"`
	// Latency is the latency of the batches since the last event of this slot; nil for none.
	Latency *histogram.Histogram `json:"-"`
}

// ChunkDone: a chunk, or the beginning of one, is finished. If records are computed one by one,
// it may be a chunk behind the one that has started, which waits for a slow record.
type ChunkDone struct {
	Slot   int          `json:"slot"`
	Device string       `json:"device"`
	First  int64        `json:"first"`
	Counts chunk.Tally  `json:"counts"` // with the failed records by kind and cause
	Job    chunk.Counts `json:"job"`
	Total  int64        `json:"total"`
	Stats  SegmentStats `json:"stats"`
	// Answers, Ahead, Held, Computed, Estimate and Usage: see [Progress].
	Answers  int64            `json:"answers,omitempty"`
	Ahead    int64            `json:"ahead,omitempty"`
	Held     int64            `json:"held,omitempty"`
	Computed int64            `json:"computed,omitempty"`
	Estimate int64            `json:"estimate,omitempty"`
	Usage    map[string]int64 `json:"usage,omitempty"`
}

// ChunkGivenUp: a chunk's attempts are used up; its records are kept. Failed of them are marked
// as failed, the others were answered before.
type ChunkGivenUp struct {
	First   int64        `json:"first"`
	Records int64        `json:"records"`
	Failed  int64        `json:"failed"`
	Counts  chunk.Tally  `json:"counts"` // with the failed records by kind and cause
	Fault   *fault.Error `json:"fault"`
}

// Notice is a line for the user.
type Notice struct {
	Text string `json:"text"`
	// Code and Value identify the advice that goes with it; see [Fault]. A value without a code
	// is a setting.
	Code  fault.Code `json:"code,omitempty"`
	Value string     `json:"value,omitempty"`
	// Alarm: a display shows it even if it shows little else.
	Alarm bool `json:"alarm,omitempty"`
}

// Stopping: the job was asked to stop and is draining the batches in flight.
type Stopping struct {
	// Drain is how long it waits for them.
	Drain time.Duration `json:"drain_ns"`
}

// EventName is the name in JSON events.
func (WorkerStarted) EventName() string { return "worker_started" }
func (WorkerPhase) EventName() string   { return "worker_phase" }
func (WorkerReady) EventName() string   { return "worker_ready" }
func (WorkerLost) EventName() string    { return "worker_lost" }
func (DeviceRetired) EventName() string { return "device_retired" }
func (WorkerLeft) EventName() string    { return "worker_left" }
func (WorkersScaled) EventName() string { return "workers_scaled" }
func (ChunkStarted) EventName() string  { return "chunk_started" }
func (Progress) EventName() string      { return "progress" }
func (ChunkDone) EventName() string     { return "chunk_done" }
func (ChunkGivenUp) EventName() string  { return "chunk_given_up" }
func (Notice) EventName() string        { return "notice" }
func (Stopping) EventName() string      { return "stopping" }
