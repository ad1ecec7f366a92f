package view

import "github.com/gpurun/gpurun/orchestrator"

// Phase is the phase of a job or of one of its workers.
type Phase string

// The phases of a job, and the additional phases of a worker: opening its kernel, which may have
// parts that are known, computing the first batch and others, waiting for files that are fetched, held back by a server, waiting for work, lost
// and not replaced, and gone because its device is better off without it.
const (
	PhasePreparing Phase = "preparing"
	PhaseRunning   Phase = "running"
	PhasePaused    Phase = "paused"
	PhaseStopping  Phase = "stopping"
	PhaseEnded     Phase = "ended"

	PhaseOpening    Phase = "opening"
	PhaseImporting  Phase = "importing"
	PhaseLoading    Phase = "loading"
	PhaseFirstBatch Phase = "first_batch"
	PhaseComputing  Phase = "computing"
	PhaseFetching   Phase = "fetching"
	PhaseHeld       Phase = "held"
	PhaseWaiting    Phase = "waiting"
	PhaseRetired    Phase = "retired"
	PhaseLeft       Phase = "left"
)

// phaseOf returns the phase of a worker with records to compute.
func phaseOf(awaits orchestrator.Awaits) Phase {
	switch awaits {
	case orchestrator.AwaitsFiles:
		return PhaseFetching
	case orchestrator.AwaitsServer:
		return PhaseHeld
	}
	return PhaseComputing
}

// HasRecords reports whether a worker in this phase has records to compute.
func (p Phase) HasRecords() bool {
	return p == PhaseComputing || p == PhaseFirstBatch || p == PhaseFetching || p == PhaseHeld
}

// starting returns the phase to show of a worker whose kernel starts, or starts again.
func (p Phase) starting(start orchestrator.Start) Phase {
	switch {
	case p != PhaseOpening && p != PhaseComputing:
	case start.Phase == orchestrator.StartImporting:
		return PhaseImporting
	case start.Phase == orchestrator.StartLoading:
		return PhaseLoading
	case start.Phase == orchestrator.StartFirstBatch && p == PhaseComputing:
		return PhaseFirstBatch
	}
	return p
}
