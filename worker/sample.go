package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// These are how many records to try alone before reporting that a kernel fails on everything.
// Each may cost a process start, and one that hangs also costs its time limit. Searching a
// batch of fewer than minSampled records takes about as long as sampling it.
const (
	deathSamples = 8
	hangSamples  = 2
	minSampled   = 16
)

// A search is usually quick if the kernel's process survives its failures. One expected to
// take longSearch or more is reported. One expected to take endlessSearch or more is treated
// like that of a crashing kernel, but with more samples: perhaps only most records fail.
const (
	livingSamples = 16
	longSearch    = 10 * time.Second
	endlessSearch = 5 * time.Minute
)

// sample handles a kernel that has computed nothing yet and failed on its first batch as a
// whole. Trying every record may take thousands of process starts, each of which loads the
// model. To report a kernel that always fails early, sample first tries some records from
// across the batch. If all fail in the same way, it reports that as the provisional outcome
// of the first batch. The orchestrator decides whether to continue the job.
func (s *search) sample(failure *fault.Error) error {
	w, n := s.run.worker, len(s.task.sent)
	if lost(failure) {
		s.reportSearch(failure)
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
				s.reportSearch(failure)
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
			return nil // so these records are to blame
		case e == nil || noRecords(e):
			return err
		}
		first.Proven = e.Kind == same.Kind && same.Alike(e)
	}
	w.send(wire.Message{Search: &wire.Search{First: first}})
	return nil
}

// prove checks, once in the worker's life, that the kernel still computes a record that an
// earlier worker computed, and reports it if so: a job that resumes may begin with a batch
// of many bad records.
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

// tryProven computes a record again that an earlier worker computed.
func (s *search) tryProven() error {
	task, done, err := s.run.worker.readProven()
	if err != nil {
		return err
	}
	defer done()
	if len(task.sent) == 0 {
		return nil
	}
	again := search{run: s.run, task: task, isControl: true}
	_, err = again.try(0, 1)
	return err
}

// reportSearch reports, once in the worker's life, that a search has begun that may take long.
func (s *search) reportSearch(failure *fault.Error) {
	if w := s.run.worker; !w.searchReported {
		w.searchReported = true
		w.send(wire.Message{Search: &wire.Search{Lost: failure}})
	}
}
