package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// A process killed by a signal from outside may have been killed by a person, a scheduler or
// the OOM killer, for reasons unrelated to its record; or the record may be what gets it
// killed every time. These constants control how that is decided.
const (
	// outsideTries is how many times the record must lose its process again, on its own.
	outsideTries = 2
	// uncontrolledTries is the same when there is no known good record to compare it with.
	uncontrolledTries = 5
	// outsideRounds is how many rounds of this to run before giving up on the worker,
	// because its processes are killed whatever they compute.
	outsideRounds = 3
	// outsideRest is the first pause between rounds; each pause is twice as long as the one
	// before.
	outsideRest = 250 * time.Millisecond
)

// A control must survive for longer than the suspect record did, within these bounds.
const (
	leastControl = time.Second
	mostControl  = 5 * time.Second
	// controlInterval is the pause between computations of the control.
	controlInterval = 20 * time.Millisecond
)

// confirm decides whether to blame a record whose process was killed from outside. It
// returns the failure to mark the record with. It returns nil if the record already has its
// verdict, or if an error prevents one.
func (s *search) confirm(at int, failure *fault.Error) (*fault.Error, error) {
	for round := range outsideRounds {
		longest, tries := time.Duration(0), outsideTries
		if s.control() == nil {
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
			switch {
			case e == nil:
				return nil, err
			case e.Sign != fault.Outside:
				return nil, s.settle(at, at+1, e)
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
		s.worker.log.Warn("the kernel process is killed from outside, whatever it computes", "line", s.line(at), "error", failure.Message)
		if err := s.rest(outsideRest << round); err != nil {
			return nil, err
		}
	}
	return nil, fault.KernelKilled.New("the kernel process is killed from outside, whatever it computes: %s", failure.Message).
		WithDetail(failure.Detail)
}

// control returns a record that the kernel has computed, or else the one that an earlier worker
// computed, or nil if none is known.
func (s *search) control() *batchTask {
	w := s.worker
	if w.proof.control == nil && w.setup.Proven != nil {
		proven := *w.setup.Proven
		w.setup.Proven = nil
		if reader, err := w.openReader(proven); err == nil {
			if task, err := reader.one(); err == nil && len(task.sent) > 0 {
				w.proof.keep(task, 0)
			}
			reader.close()
		}
	}
	return w.proof.control
}

// controlDies reports whether a good record also loses its process within the given time.
func (s *search) controlDies(within time.Duration) (bool, error) {
	task := s.control()
	if task == nil {
		return false, nil
	}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		err := s.again(task)
		if err == nil {
			if err = s.rest(controlInterval); err == nil && s.worker.host.dead() {
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
		return false, nil // it fails now, but is not killed
	}
	return false, nil
}

// rest pauses, unless the job stops.
func (s *search) rest(d time.Duration) error { return s.worker.rest(s.lane.ctx, d) }
