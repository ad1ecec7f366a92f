package worker

import (
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// How many records are tried alone before a kernel is said to end with everything: each
// costs a start of its process, and one that hangs, its time limit, too. A batch with
// less than minSampled records is searched about as soon.
const (
	deathSamples = 8
	hangSamples  = 2
	minSampled   = 16
)

// sample is for a kernel that has computed nothing yet, and was lost by its first batch
// as a whole: to try its records, one by one, may take thousands of starts, with a model
// loaded in each. So that a kernel that always dies is told soon, some records from all
// over the batch are tried first. If each ends it in the same way, that is reported as
// the outcome of the first batch, until that is known; whether the job goes on is not
// decided here.
func (s *search) sample(failure *fault.Error) error {
	w, n := s.run.worker, len(s.job.sent)
	samples := deathSamples
	switch failure.Kind {
	case fault.Crash:
	case fault.Timeout:
		samples = hangSamples
	default: // it lives: the search takes no time
		return nil
	}
	if !w.searched {
		w.searched = true
		w.send(wire.Message{Search: &wire.Search{Lost: failure}})
	}
	if w.host.computed || n < minSampled || w.sampled {
		return nil
	}
	w.sampled = true
	var same *fault.Error
	for i := range samples {
		at := i * (n - 1) / (samples - 1)
		_, err := s.try(at, at+1)
		if err == nil {
			return nil
		}
		e := fault.As(err)
		if e == nil {
			return err
		}
		if noRecords(e) {
			return e
		}
		if e.Kind != failure.Kind || same != nil && same.Message != e.Message {
			return nil
		}
		same = e
	}
	w.send(wire.Message{Search: &wire.Search{First: &wire.FirstBatch{Failed: same, Sampled: true}}})
	return nil
}
