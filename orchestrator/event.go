package orchestrator

import (
	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/plugins/kernel"
)

// Event is something that happened in a job: one of the types below.
type Event = event.Event

// What happens to workers, chunks and devices.
type (
	WorkerStarted = event.WorkerStarted
	WorkerPhase   = event.WorkerPhase
	WorkerReady   = event.WorkerReady
	WorkerLost    = event.WorkerLost
	WorkerLeft    = event.WorkerLeft
	WorkersScaled = event.WorkersScaled
	DeviceRetired = event.DeviceRetired
	DeviceEvent   = event.DeviceEvent
	DeviceSample  = event.DeviceSample
	ChunkStarted  = event.ChunkStarted
	Progress      = event.Progress
	ChunkDone     = event.ChunkDone
	ChunkGivenUp  = event.ChunkGivenUp
	Notice        = event.Notice
	Stopping      = event.Stopping
)

// What events, plans and reports consist of.
type (
	Slot          = event.Slot
	SegmentStats  = event.SegmentStats
	SickDevice    = event.SickDevice
	WorkerReport  = event.WorkerReport
	Start         = wire.Start
	StartPhase    = wire.StartPhase
	Imports       = kernel.Imports
	Import        = kernel.Import
	ScalingReport = event.ScalingReport
)

// The phases of the start of a kernel.
const (
	StartImporting  = wire.StartImporting
	StartLoading    = wire.StartLoading
	StartFirstBatch = wire.StartFirstBatch
	StartDone       = wire.StartDone
)

// Planned: the input is counted, the devices are known, nothing has started.
type Planned struct {
	Plan Plan `json:"plan"`
	// Folder is the job folder.
	Folder string `json:"folder,omitempty"`
	// First is the number of the first record of the input that the job computes.
	First int64 `json:"first"`
}

// Resuming: an earlier run of the same job has done part of it.
type Resuming struct {
	Done int64 `json:"done"`
	// Answers of further records are logged, and are not computed again either.
	Answers int64 `json:"answers,omitempty"`
	// Job counts the results of those records, Ranges says where they are.
	Job    chunk.Tally `json:"job"`
	Ranges []Range     `json:"ranges"`
	// Total is -1 while unknown.
	Total int64 `json:"total"`
}

// Paused: the job was asked to pause; its workers wait at their next batch boundary.
type Paused struct{}

// Resumed: a paused job continues.
type Resumed struct{}

// Finished is the last event.
type Finished struct {
	Report Report `json:"report"`
}

// EventName is the name in JSON events.
func (Planned) EventName() string  { return "planned" }
func (Resuming) EventName() string { return "resuming" }
func (Paused) EventName() string   { return "paused" }
func (Resumed) EventName() string  { return "resumed" }
func (Finished) EventName() string { return "finished" }
