package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// sample handles a kernel that has computed nothing yet and failed on its first batch as a
// whole. To report a kernel that always fails early, sample first tries some records. If all
// fail in the same way, it reports that as the provisional outcome of the first batch. The
// orchestrator decides whether to continue the job.
func (s *search) sample(failure *fault.Error) error {
	w, n := s.worker, len(s.task.sent)
	if lost(failure) {
		s.reportSearch(failure)
	}
	if w.host.computed || n < judge.MinSampled || w.sampled {
		return nil
	}
	w.sampled = true
	trial := judge.NewTrial(failure, lost(failure), n)
	for at := range trial.Records() {
		began := time.Now()
		_, err := s.try(at, at+1)
		e := fault.As(err)
		switch {
		case err == nil:
			return nil
		case e == nil || noRecords(e):
			return err
		}
		more, long := trial.Fails(e, time.Since(began))
		if long {
			s.reportSearch(failure)
		}
		if !more {
			return nil
		}
	}
	var proof *fault.Error
	if control := s.control(); control != nil {
		err := s.again(control)
		proof = fault.As(err)
		switch {
		case err == nil:
			return nil // so these records are to blame
		case proof == nil || noRecords(proof):
			return err
		}
	}
	w.send(wire.Message{Search: &wire.Search{First: trial.First(proof)}})
	return nil
}

// prove checks, once in the worker's life, that the kernel still computes a record that an
// earlier worker computed, and reports it if so: a job that resumes may begin with a batch
// of many bad records.
func (s *search) prove() error {
	w := s.worker
	control := s.control()
	if w.proof.given || control == nil {
		return nil
	}
	w.proof.given = true
	err := s.again(control)
	switch e := fault.As(err); {
	case err == nil:
		w.send(wire.Message{Search: &wire.Search{First: &judge.First{}}})
	case e == nil || noRecords(e):
		return err
	}
	return nil
}

// reportSearch reports, once in the worker's life, that a search has begun that may take long.
func (s *search) reportSearch(failure *fault.Error) {
	if w := s.worker; !w.searchReported {
		w.searchReported = true
		w.send(wire.Message{Search: &wire.Search{Lost: failure}})
	}
}
