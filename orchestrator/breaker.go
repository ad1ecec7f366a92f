package orchestrator

import (
	"context"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// noteFirst takes how a slot's first batch went. When those of all workers failed
// entirely, by the same message, the kernel fails on everything: the job stops
// with that message instead of marking a million records. A job that has nothing
// left beyond those batches is let finish.
func (j *job) noteFirst(now context.Context, slot Slot, first *wire.FirstBatch) {
	if first == nil {
		return
	}
	j.mu.Lock()
	if j.slots[slot.Number].first == nil {
		j.slots[slot.Number].first = first
	}
	j.mu.Unlock()
	j.letGo(now, false)
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
	var same *fault.Error
	workers := 0
	for i := range j.slots {
		s := &j.slots[i]
		if s.retired {
			continue
		}
		if s.first == nil {
			open = true
			continue
		}
		if s.first.Failed == nil || same != nil && same.Message != s.first.Failed.Message {
			return nil, false
		}
		same = s.first.Failed
		workers++
	}
	if same == nil || open {
		return nil, same != nil
	}
	if total := j.total(); total >= 0 && total-j.before.Records <= int64(workers*j.plan.BatchSize) {
		return nil, false
	}
	return fault.New(fault.Incompatible, "the kernel fails on everything: the first batch of every worker failed entirely by: %s", same.Message).
		WithDetail(same.Detail), false
}

// checkHalt stops the job when more records failed than the user will have.
// Those of earlier runs do not count: whoever goes on has seen them.
func (j *job) checkHalt() {
	j.mu.Lock()
	done := j.done()
	j.mu.Unlock()
	failed, records := done.Failed-j.before.Failed, done.Records-j.before.Records
	if j.config.Halt.reached(failed, records, j.total()) {
		j.halt(fault.New(fault.Stopped, "stopped because %d of %d records failed (--halt); the same command goes on", failed, records))
	}
}
