package worker

import (
	"github.com/gpurun/gpurun/internal/fault"
)

// A failure may read like a lost device only because the kernel's message quotes a record
// that mentions one. A record that is known to be good provides the proof: no process can
// compute it on a lost device.

// control is the outcome of computing a good record after such a failure.
type control int

const (
	controlUnknown  control = iota // no good record is known, or it failed for another reason
	controlComputes                // the device computed it
	controlFails                   // the device failed it too, in a fresh process
)

// culprit is what such a failure is blamed on.
type culprit int

const (
	undecided culprit = iota // the orchestrator decides, because it knows the other devices
	theRecord
	theDevice
)

// blamed decides what to blame. asked means that the orchestrator has already blamed the
// record in case this worker has no proof.
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

// verifyDevice reclassifies a failure that only reads like a lost device. It returns other
// failures unchanged.
func (s *search) verifyDevice(failure *fault.Error) (*fault.Error, error) {
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

// tryControl computes a good record again: in the current process, and if that fails, in a
// fresh one.
func (s *search) tryControl() (control, error) {
	task := s.control()
	if task == nil {
		return controlUnknown, nil
	}
	again := search{run: s.run, task: task, isControl: true}
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
