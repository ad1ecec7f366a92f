package worker

import (
	"github.com/gpurun/gpurun/internal/fault"
)

// A failure may read like a lost device because the kernel's message quotes a record that
// speaks of one. The proof is a record that is known to be good: on a lost device no
// process computes it.

// control is what became of a good record behind such a failure.
type control int

const (
	controlUnknown  control = iota // no good record is known, or it failed by something else
	controlComputes                // the device computed it
	controlFails                   // in a fresh process, it failed by the device too
)

// culprit is what such a failure is blamed on.
type culprit int

const (
	undecided culprit = iota // the orchestrator, who knows other devices, decides
	theRecord
	theDevice
)

// blamed decides. asked: the orchestrator has decided already, in case this worker cannot.
func blamed(c control, asked bool) culprit {
	switch {
	case c == controlComputes:
		return theRecord
	case c == controlFails:
		return theDevice
	case asked:
		return theRecord
	}
	return undecided
}

// doubt makes of a failure that only reads like a lost device what it is. Others stay as
// they are.
func (s *search) doubt(failure *fault.Error) (*fault.Error, error) {
	if failure == nil || failure.Kind != fault.Device || failure.Sign != fault.Text || s.isControl {
		return failure, nil
	}
	outcome, err := s.tryControl()
	if err != nil {
		return nil, err
	}
	doubted := *failure
	switch blamed(outcome, s.run.blame) {
	case theRecord:
		doubted.Kind, doubted.Sign = fault.Batch, ""
	case theDevice:
		doubted.Sign = ""
	}
	return &doubted, nil
}

// tryControl computes a good record once more: in the process at hand, and, if that cannot,
// in a fresh one.
func (s *search) tryControl() (control, error) {
	job := s.run.worker.controlRecord()
	if job == nil {
		return controlUnknown, nil
	}
	again := search{run: s.run, job: job, isControl: true}
	for range 2 {
		_, err := again.try(0, 1)
		if err == nil {
			return controlComputes, nil
		}
		e := fault.As(err)
		switch {
		case e == nil:
			return controlUnknown, err
		case e.Kind != fault.Device && noRecords(e):
			return controlUnknown, err
		case e.Kind != fault.Device:
			return controlUnknown, nil
		}
		s.run.worker.host.kill()
	}
	return controlFails, nil
}
