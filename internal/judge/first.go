package judge

import (
	"iter"
	"math/bits"

	"github.com/gpurun/gpurun/internal/fault"
)

// First is the outcome of a worker's first records. It distinguishes a kernel that fails on
// everything, and a job none of whose files can be fetched, from one that met a bad record.
// The zero value means that the kernel works.
type First struct {
	// Failed is the error of all records so far, the same for each unless Varied; nil if
	// they did not all fail.
	Failed *fault.Error `json:"failed,omitempty"`
	// Records is how many failed. It is reported again with later batches as long as all
	// of their records fail too, up to variedRecords.
	Records int `json:"records,omitempty"`
	// Varied: the messages differ, but the kernel causes all of them, or all are about files
	// that cannot be fetched.
	Varied bool `json:"varied,omitempty"`
	// Sampled: only a sample from the whole batch was tried, and each record of it failed
	// alone. Trying all takes long; the result for the whole batch follows later.
	Sampled bool `json:"sampled,omitempty"`
	// Proven: a record that succeeded in an earlier run failed too.
	Proven bool `json:"proven,omitempty"`
}

const (
	// judgedRecords is how many records must fail before a kernel counts as failing on
	// everything. Otherwise, with batches of one, a single bad record would be enough.
	judgedRecords = 16
	// variedRecords is the same for messages that differ from record to record, and for files
	// that cannot be fetched: the first ones of a job may be gone.
	variedRecords = 1000
)

// Extend adds a batch to a run of records that all failed: failures yields the failure of
// each of its records, nil for a success. Extend returns the zero value if the kernel turns
// out to work.
//
// A file that cannot be fetched says nothing about the kernel, and a record that the kernel
// got proves that files can be fetched.
func (f First) Extend(failures iter.Seq[*fault.Error]) First {
	for failure := range failures {
		if failure != nil && f.Failed != nil && isFetch(failure) != isFetch(f.Failed) {
			if isFetch(failure) {
				continue
			}
			f = First{}
		}
		switch {
		case failure == nil:
			return First{}
		case f.Failed == nil:
			f.Failed = failure
		case f.Failed.Alike(failure):
		case f.Failed.OfKernel() && failure.OfKernel(), isFetch(failure):
			f.Varied = true
		default:
			return First{}
		}
		f.Records++
	}
	return f
}

// Settled reports whether later batches cannot add to the outcome. While no file can be
// fetched, the kernel is still to be judged.
func (f First) Settled() bool {
	return f.Failed == nil || f.Records >= variedRecords && !isFetch(f.Failed)
}

// Matters reports whether a judge that knows the outcome before may now decide differently.
// The records of all workers count together: each reports when it has twice as many.
func (f First) Matters(before First) bool {
	return f.Settled() || before.Records < judgedRecords || f.Varied != before.Varied || bits.Len(uint(f.Records)) != bits.Len(uint(before.Records))
}

// isFetch reports whether the record failed before the kernel got it, because a file cannot
// be fetched.
func isFetch(failure *fault.Error) bool { return failure.Kind == fault.Fetch }
