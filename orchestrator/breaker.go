package orchestrator

import (
	"context"
	"fmt"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// noteFirst takes how a slot's first batches went. When those of all workers failed
// entirely the kernel fails on everything: the job stops instead of marking a million
// records.
func (j *job) noteFirst(now context.Context, slot Slot, first *wire.FirstBatch) {
	if first == nil {
		return
	}
	j.mu.Lock()
	if s := &j.slots[slot.Number]; s.first == nil || s.first.Failed != nil {
		s.first = first
	}
	j.mu.Unlock()
	j.letGo(now, false)
}

// noteSearch tells, once, that the kernel was lost by a batch: the search for the record
// is all that happens for a while.
func (j *job) noteSearch(now context.Context, slot Slot, search wire.Search) {
	if lost := search.Lost; lost != nil {
		j.mu.Lock()
		told := j.searchTold
		j.searchTold = true
		j.mu.Unlock()
		if !told {
			j.emit(Notice{Text: fmt.Sprintf("%s: a batch failed as a whole: %s; looking for the records that it failed by", slot.Name, lost.Message)})
		}
	}
	j.noteFirst(now, slot, search.First)
}

// breaker is why the job must stop, nil if it need not. open: the kernel has
// failed on everything so far, and not all workers have been heard. The caller
// holds j.mu.
func (j *job) breaker() (why *fault.Error, open bool) {
	if j.config.framed {
		return nil, false // a retry: that all of these fail again is no wonder
	}
	// A success disproves it, whoever is still loading a model: what is done must
	// not wait for that one.
	for _, s := range j.held {
		if s.Tally.Succeeded+s.Tally.Dropped > 0 {
			return nil, false
		}
	}
	works := j.before.Succeeded+j.before.Dropped > 0 // an earlier run has shown that
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
			return nil, false // it may have been stopped in the search for just these records
		}
		same = failed
		varied = varied || s.first.Varied
		sampled = sampled || s.first.Sampled
		if s.first.Proven {
			proven = ", and one that an earlier run has computed,"
		}
		workers++
		judged += s.first.Records
	}
	if same == nil || open {
		return nil, same != nil
	}
	total := j.total()
	// Whoever writes to a stream and reads one may wait for what became of a record.
	canHold := total >= 0 || !isStream(j.config.Output)
	small := total >= 0 && total-j.before.Records <= int64(workers*j.plan.BatchSize)
	if small && !(sampled && dies(same)) { // that would take as many restarts as there are records
		return nil, same.OfKernel() // all that is left is judged at the end
	}
	if sampled && !varied {
		return fault.New(fault.Incompatible, "the kernel fails on everything: each record of the first batches that was tried alone%s failed by: %s", proven, same.Message).
			WithDetail(same.Detail), false
	}
	switch {
	case varied && judged < wire.VariedRecords, judged < wire.JudgedRecords: // a single record that fails proves nothing
		return nil, canHold
	case varied:
		return fault.New(fault.Incompatible, "the kernel fails on everything: each of the first %d records failed, the last of them by: %s", judged, same.Message).
			WithDetail(same.Detail), false
	}
	return fault.New(fault.Incompatible, "the kernel fails on everything: the first batch of every worker failed entirely by: %s", same.Message).
		WithDetail(same.Detail), false
}

// failedEntirely is why a job fails that is through with its records, two or more: each of
// them failed by the same message, which is the kernel's. Nil if it is not so. The caller
// holds j.mu.
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
			return fault.New(fault.Incompatible, "the kernel fails on everything: each of the %d records failed by: %s", all.Records, stats.Example).
				WithDetail(stats.Detail)
		}
	}
	return nil
}

// dies reports a failure that the kernel's process did not live through.
func dies(failed *fault.Error) bool {
	return failed.Kind == fault.Crash || failed.Kind == fault.Timeout
}

// checkHalt stops the job when more records failed than the user will have.
// Those of earlier runs do not count: whoever goes on has seen them.
func (j *job) checkHalt() {
	j.mu.Lock()
	done := j.done()
	j.mu.Unlock()
	failed, records := done.Failed-j.before.Failed, done.Records-j.before.Records
	if j.config.Halt.reached(failed, records, j.total()) {
		j.halt(fault.New(fault.Stopped, "stopped because %d of %d records failed (--halt)", failed, records))
	}
}
