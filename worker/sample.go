package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// How many records are tried alone before a kernel is said to fail on everything: each
// may cost a start of its process, and one that hangs, its time limit, too. A batch with
// less than minSampled records is searched about as soon.
const (
	deathSamples = 8
	hangSamples  = 2
	minSampled   = 16
)

// A kernel whose process lives is mostly searched in no time. A search from longSearch on
// is told of; one from endlessSearch on is like one for a kernel that dies, but what it
// takes for a kernel that always fails may be records that mostly do: more are tried.
const (
	livingSamples = 16
	longSearch    = 10 * time.Second
	endlessSearch = 5 * time.Minute
)

// sample is for a kernel that has computed nothing yet, and has failed on its first batch
// as a whole: to try its records, one by one, may take thousands of starts, with a model
// loaded in each. So that a kernel that always fails is told soon, some records from all
// over the batch are tried first. If each fails in the same way, that is reported as
// the outcome of the first batch, until that is known; whether the job goes on is not
// decided here.
func (s *search) sample(failure *fault.Error) error {
	w, n := s.run.worker, len(s.job.sent)
	if lost(failure) {
		s.tell(failure)
	}
	if w.host.computed || n < minSampled || w.sampled {
		return nil
	}
	w.sampled = true
	samples := livingSamples
	switch failure.Kind {
	case fault.Crash:
		samples = deathSamples
	case fault.Timeout:
		samples = hangSamples
	}
	var same *fault.Error
	for i := range samples {
		at, began := i*(n-1)/(samples-1), time.Now()
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
		if e.Kind != failure.Kind || same != nil && !same.Alike(e) {
			return nil
		}
		same = e
		if !lost(failure) {
			search := time.Since(began) * time.Duration(2*n)
			if search >= longSearch {
				s.tell(failure)
			}
			if search < endlessSearch {
				return nil
			}
		}
	}
	first := &wire.FirstBatch{Failed: same, Sampled: true}
	if w.setup.Proven != nil {
		err := s.tryProven()
		e := fault.As(err)
		switch {
		case err == nil:
			return nil // it is these records, then
		case e == nil || noRecords(e):
			return err
		}
		first.Proven = e.Kind == same.Kind && same.Alike(e)
	}
	w.send(wire.Message{Search: &wire.Search{First: first}})
	return nil
}

// prove shows, once in the worker's life, that the kernel works, if a record computes that
// an earlier worker has computed: the batch at hand may be of many bad records, where an
// earlier run was stopped.
func (s *search) prove() error {
	w := s.run.worker
	if w.proof.given || w.setup.Proven == nil {
		return nil
	}
	w.proof.given = true
	err := s.tryProven()
	switch e := fault.As(err); {
	case err == nil:
		w.send(wire.Message{Search: &wire.Search{First: &wire.FirstBatch{}}})
	case e == nil || noRecords(e):
		return err
	}
	return nil
}

// tryProven computes a record once more that an earlier worker has computed.
func (s *search) tryProven() error {
	job, done, err := s.run.worker.readProven()
	if err != nil {
		return err
	}
	defer done()
	if len(job.sent) == 0 {
		return nil
	}
	again := search{run: s.run, job: job, isControl: true}
	_, err = again.try(0, 1)
	return err
}

// tell says, once in the worker's life, that a search has begun which may take long.
func (s *search) tell(failure *fault.Error) {
	if w := s.run.worker; !w.searched {
		w.searched = true
		w.send(wire.Message{Search: &wire.Search{Lost: failure}})
	}
}
