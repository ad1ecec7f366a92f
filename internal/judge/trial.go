package judge

import (
	"iter"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// MinSampled is the size from which a batch is worth a trial: searching a smaller one takes
// about as long.
const MinSampled = 16

// These are how many records to try alone before reporting that a kernel fails on everything.
// Each may cost a process start, and one that hangs also costs its time limit.
const (
	deathSamples  = 8
	hangSamples   = 2
	livingSamples = 16
)

// A search is usually quick if the kernel's process survives its failures. One expected to
// take longSearch or more is reported. One expected to take endlessSearch or more is treated
// as after crashes, but with more samples: perhaps only most records fail.
const (
	longSearch    = 10 * time.Second
	endlessSearch = 5 * time.Minute
)

// Trial samples a first batch that failed as a whole. Trying every record may take thousands
// of process starts, each of which loads the model, so some records from across the batch are
// tried alone first.
type Trial struct {
	failure  *fault.Error
	restarts bool // each failure costs a process start
	records  int
	same     *fault.Error // the failure of all samples so far
}

// NewTrial returns the trial of a batch of at least MinSampled records. restarts: the failure
// ended the kernel's process.
func NewTrial(failure *fault.Error, restarts bool, records int) *Trial {
	return &Trial{failure: failure, restarts: restarts, records: records}
}

// Records yields the records to try, by their index in the batch.
func (t *Trial) Records() iter.Seq[int] {
	samples := livingSamples
	switch t.failure.Kind {
	case fault.Crash:
		samples = deathSamples
	case fault.Timeout:
		samples = hangSamples
	}
	return func(yield func(int) bool) {
		for i := range samples {
			if !yield(i * (t.records - 1) / (samples - 1)) {
				return
			}
		}
	}
}

// Fails notes that a record failed alone and how long that took. more: try the next one;
// otherwise the batch is searched. long: that search will take long.
func (t *Trial) Fails(e *fault.Error, took time.Duration) (more, long bool) {
	if e.Kind != t.failure.Kind || t.same != nil && !t.same.Alike(e) {
		return false, false
	}
	t.same = e
	if t.restarts {
		return true, false
	}
	search := took * time.Duration(2*t.records)
	return search >= endlessSearch, search >= longSearch
}

// First is the provisional outcome when all samples have failed in the same way. proof is the
// failure of a record that succeeded in an earlier run, nil if none was tried.
func (t *Trial) First(proof *fault.Error) *First {
	proven := proof != nil && proof.Kind == t.same.Kind && t.same.Alike(proof)
	return &First{Failed: t.same, Sampled: true, Proven: proven}
}
