package orchestrator

import (
	"context"
	"fmt"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// noteFirst records the outcome of a slot's first batches. When those of all workers
// failed entirely, the kernel fails on everything: the job stops instead of marking a
// million records.
func (j *job) noteFirst(ctx context.Context, slot Slot, first *wire.FirstBatch) {
	if first == nil {
		return
	}
	j.mu.Lock()
	if s := &j.slots[slot.Number]; s.first == nil || s.first.Failed != nil {
		s.first = first
	}
	j.mu.Unlock()
	j.releaseHeld(ctx, false)
}

// noteSearch reports, once, that a batch killed the kernel: nothing but the bisection
// happens for a while.
func (j *job) noteSearch(ctx context.Context, slot Slot, search wire.Search) {
	if lost := search.Lost; lost != nil {
		j.mu.Lock()
		reported := j.searchReported
		j.searchReported = true
		j.mu.Unlock()
		if !reported {
			j.emit(Notice{Text: fmt.Sprintf("%s: a whole batch failed: %s; bisecting it to isolate the bad records", slot.Name, lost.Message)})
		}
	}
	j.noteFirst(ctx, slot, search.First)
}

// breaker returns why the job must stop, or nil. open: the kernel has failed on
// everything so far, and not all workers have reported. The caller must hold j.mu.
func (j *job) breaker() (why *fault.Error, open bool) {
	if j.config.framed {
		return nil, false // a retry: that these fail again is no surprise
	}
	// One success disproves it, even while other workers are still loading a model.
	// Finished work must not wait for them.
	for _, s := range j.held {
		if s.Tally.Succeeded+s.Tally.Dropped > 0 {
			return nil, false
		}
	}
	works := j.before.Succeeded+j.before.Dropped > 0 // proven by an earlier run
	var same *fault.Error
	workers, judged, varied, sampled, proven := 0, 0, false, false, ""
	for i := range j.slots {
		s := &j.slots[i]
		if s.retired {
			continue
		}
		if s.first == nil {
			open = true
			continue
		}
		failed := s.first.Failed
		if failed == nil {
			return nil, false
		}
		if same != nil && !same.Alike(failed) {
			if !same.OfKernel() || !failed.OfKernel() {
				return nil, false
			}
			varied = true
		}
		if works && (s.first.Sampled || dies(failed)) && !s.first.Proven {
			return nil, false // it may have been stopped while bisecting exactly these records
		}
		same = failed
		varied = varied || s.first.Varied
		sampled = sampled || s.first.Sampled
		if s.first.Proven {
			proven = ", and one that succeeded in an earlier run,"
		}
		workers++
		judged += s.first.Records
	}
	if same == nil || open {
		return nil, same != nil
	}
	total := j.total()
	// A program that writes to one stream and reads the other may wait for a record's
	// result.
	canHold := total >= 0 || !isStream(j.config.Output)
	small := total >= 0 && total-j.before.Records <= int64(workers*j.plan.BatchSize)
	if small && !(sampled && dies(same)) { // trying each would take as many restarts as there are records
		return nil, same.OfKernel() // the remaining records are judged at the end
	}
	if sampled && !varied {
		return fault.New(fault.Incompatible, "the kernel fails on everything: each record of the first batches that was tried alone%s failed with: %s", proven, same.Message).
			WithDetail(same.Detail), false
	}
	switch {
	case varied && judged < wire.VariedRecords, judged < wire.JudgedRecords: // a single failing record proves nothing
		return nil, canHold
	case varied:
		return fault.New(fault.Incompatible, "the kernel fails on everything: each of the first %d records failed, the last of them with: %s", judged, same.Message).
			WithDetail(same.Detail), false
	}
	return fault.New(fault.Incompatible, "the kernel fails on everything: every record in every worker's first batch failed with: %s", same.Message).
		WithDetail(same.Detail), false
}

// failedEntirely returns why a job that has processed all its records, two or more,
// fails: every record failed with the same message, which is the kernel's. Otherwise it
// returns nil. The caller must hold j.mu.
func (j *job) failedEntirely() *fault.Error {
	if j.config.framed || j.before.Records > 0 {
		return nil
	}
	var all chunk.Tally
	all.Add(j.tally)
	for _, s := range j.held {
		all.Add(s.Tally)
	}
	if total := j.total(); total < 2 || all.Records != total || all.Failed != total || len(all.Causes) != 1 || len(all.Kinds) != 1 {
		return nil
	}
	for _, kind := range []fault.Kind{fault.Batch, fault.Crash, fault.Timeout} {
		if stats, ok := all.Kinds[kind.String()]; ok {
			return fault.New(fault.Incompatible, "the kernel fails on everything: all %d records failed with: %s", all.Records, stats.Example).
				WithDetail(stats.Detail)
		}
	}
	return nil
}

// dies reports whether the failure ended the kernel's process.
func dies(failed *fault.Error) bool {
	return failed.Kind == fault.Crash || failed.Kind == fault.Timeout
}

// checkHalt stops the job when more records failed than the user allows. Those of
// earlier runs do not count: a user who resumes has seen them.
func (j *job) checkHalt() {
	j.mu.Lock()
	done := j.done()
	j.mu.Unlock()
	failed, records := done.Failed-j.before.Failed, done.Records-j.before.Records
	if j.config.Halt.reached(failed, records, j.total()) {
		j.halt(fault.New(fault.Stopped, "stopped because %d of %d records failed (--halt)", failed, records))
	}
}
