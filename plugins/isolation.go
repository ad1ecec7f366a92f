package plugins

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// A kernel that fails a batch may isolate the bad records itself, if it can compute the
// others without another exchange: it returns the results of the others, and [Results.Raise]
// for each bad one. Otherwise the caller bisects the batch, with one call for each part.

// Isolation returns how long the kernel may take to isolate the bad records of the batch,
// counted from the beginning of its computation. It is 0 if the kernel must fail the batch
// instead.
func (b Batch) Isolation() time.Duration { return b.isolation }

// WithIsolation returns the batch with that limit. It is for callers of a kernel.
func (b Batch) WithIsolation(limit time.Duration) Batch {
	b.isolation = limit
	return b
}

// Raise fails record i with the error that the kernel returns for a batch of this record
// alone. An error that is not the record's fault, such as a lack of memory, fails the batch.
func (r *Results) Raise(i int, err error) {
	failure := fault.As(symptom.Classify(fault.Batch, err, r.onCPU))
	if failure.Kind != fault.Batch {
		r.Attempt(failure)
		return
	}
	r.FailIn(i, failure.Step, failure.Message)
	if i >= 0 && i < len(r.refusals) && r.refusals[i].raised == nil {
		r.refusals[i].raised, r.isolated = failure, true
	}
}

// Attempt reports that the batch or a part of it failed with err before the kernel isolated
// the bad records. An error that is not the fault of records fails the batch.
func (r *Results) Attempt(err error) {
	if failure := fault.As(symptom.Classify(fault.Batch, err, r.onCPU)); failure.Kind != fault.Batch && r.misuse == nil {
		r.misuse = failure
	}
}

// Isolated reports whether the kernel has isolated bad records. It is valid only after Wait
// has returned nil.
func (r *Results) Isolated() bool { return r.isolated }

// WithWhole adds to the failure of one record how its batch of n records failed as a whole,
// if that message differs: for example 127 values for 128 records, and none for one. It goes
// into the detail because the message must depend on the record alone.
func WithWhole(err error, whole string, n int) error {
	failure := fault.As(err)
	if failure == nil || whole == failure.Message {
		return err
	}
	text := fmt.Sprintf("the batch of %d records failed with: %s", n, whole)
	return failure.WithDetail(strings.TrimSpace(failure.Detail + "\n" + text))
}
