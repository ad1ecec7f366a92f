package orchestrator

import (
	"context"
	"fmt"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// noteFirst records the outcome of a slot's first batches. When those of all workers
// failed entirely, the kernel fails on everything: the job stops instead of marking a
// million records.
func (j *job) noteFirst(ctx context.Context, slot Slot, first *judge.First) {
	if first == nil {
		return
	}
	j.ledger.hear(slot.Number, first)
	j.releaseHeld(ctx, false)
}

// noteSearch reports, once, that a batch killed the kernel: nothing but the bisection
// happens for a while.
func (j *job) noteSearch(ctx context.Context, slot Slot, search wire.Search) {
	if lost := search.Lost; lost != nil && !j.searchReported.Swap(true) {
		j.emit(Notice{Text: fmt.Sprintf("%s: a whole batch failed: %s; bisecting it to isolate the bad records", slot.Name, lost.Message)})
	}
	j.noteFirst(ctx, slot, search.First)
}

// checkHalt stops the job when more records failed than the user allows. Those of
// earlier runs do not count: a user who resumes has seen them.
func (j *job) checkHalt() {
	done, before := j.ledger.done(), j.ledger.before
	failed, records := done.Failed-before.Failed, done.Records-before.Records
	if j.config.Halt.reached(failed, records, j.ledger.total()) {
		j.halt(fault.New(fault.Stopped, "stopped because %d of %d records failed (--halt)", failed, records))
	}
}
