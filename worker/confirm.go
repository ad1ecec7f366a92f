package worker

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// A process that a signal from outside ended was perhaps killed by a person, a
// scheduler or the system for want of memory, and its record has nothing to do with it;
// or the record is such that somebody kills it every time. How that is decided:
const (
	// outsideTries is how often the record must lose its process again, alone.
	outsideTries = 2
	// uncontrolledTries is the same where no other record is known to compare it with.
	uncontrolledTries = 5
	// outsideRounds is how often all of that is done before the worker is given up: its
	// processes are killed whatever they compute.
	outsideRounds = 3
	// outsideRest is how long the first pause between them is; each is twice as long as
	// the one before.
	outsideRest = 250 * time.Millisecond
)

// How long a record that is known to be good must live where the other died: longer
// than that one did, within these bounds.
const (
	leastControl = time.Second
	mostControl  = 5 * time.Second
	// controlInterval is how often it is computed meanwhile.
	controlInterval = 20 * time.Millisecond
)

// confirm decides about a record whose process was ended from outside: it returns the
// failure to mark it with; or nil if the record has its verdict, or with the error that
// keeps it from one.
func (s *search) confirm(at int, failure *fault.Error) (*fault.Error, error) {
	for round := range outsideRounds {
		longest, tries := time.Duration(0), outsideTries
		if s.run.worker.controlRecord() == nil {
			tries = uncontrolledTries
		}
		for range tries {
			began := time.Now()
			results, err := s.try(at, at+1)
			if err == nil {
				s.pass(at, at+1, results)
				return nil, nil
			}
			e := fault.As(err)
			if e == nil || e.Sign != fault.Outside {
				return nil, s.otherwise(at, e, err)
			}
			failure, longest = e, max(longest, time.Since(began))
		}
		killed, err := s.controlDies(min(max(2*longest, leastControl), mostControl))
		if err != nil {
			return nil, err
		}
		if !killed {
			return failure, nil
		}
		s.run.worker.log.Warn("the kernel process is killed from outside, whatever it computes", "line", s.line(at), "error", failure.Message)
		if err := s.rest(outsideRest << round); err != nil {
			return nil, err
		}
	}
	return nil, fault.New(fault.Worker, "the kernel process is killed from outside, whatever it computes: %s", failure.Message).
		WithDetail(failure.Detail)
}

// otherwise settles a record that failed in another way than by a signal from outside.
func (s *search) otherwise(at int, e *fault.Error, err error) error {
	if e == nil {
		return err
	}
	return s.settle(at, at+1, e)
}

// controlDies reports whether a good record loses its process too, within so much time.
func (s *search) controlDies(within time.Duration) (bool, error) {
	job := s.run.worker.controlRecord()
	if job == nil {
		return false, nil
	}
	again := search{run: s.run, job: job, isControl: true}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		_, err := again.try(0, 1)
		if err == nil {
			if err = s.rest(controlInterval); err == nil && s.run.dead() {
				return true, nil
			}
		}
		if err == nil {
			continue
		}
		e := fault.As(err)
		switch {
		case e == nil || noRecords(e):
			return false, err
		case e.Sign == fault.Outside:
			return true, nil
		}
		return false, nil // it fails by now, but nobody kills it
	}
	return false, nil
}

// rest waits, unless the job stops.
func (s *search) rest(d time.Duration) error {
	ctx, cancel := context.WithTimeout(s.run.ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
		return s.run.ctx.Err()
	case <-s.run.worker.stops.halted:
		return errInterrupted
	}
}
