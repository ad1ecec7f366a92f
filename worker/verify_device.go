package worker

import (
	"github.com/gpurun/gpurun/internal/fault"
)

// A failure may read like a lost device only because the kernel's message quotes a record
// that mentions one. A record that is known to be good provides the proof: no process can
// compute it on a lost device.

// verifyDevice reclassifies a failure that only reads like a lost device. It returns other
// failures unchanged. Without proof, the orchestrator decides, because it knows the other devices;
// it may have blamed the record already.
func (s *search) verifyDevice(failure *fault.Error) (*fault.Error, error) {
	if failure == nil || failure.Kind != fault.Device || failure.Sign != fault.Text || s.isControl {
		return failure, nil
	}
	computes, fails, err := s.tryControl()
	if err != nil {
		return nil, err
	}
	doubted := *failure
	switch {
	case fails:
		doubted.Sign = ""
	case computes, s.lane.Blame:
		doubted.Kind, doubted.Sign = fault.Batch, ""
	}
	return &doubted, nil
}

// tryControl computes a good record again: in the current process, and if that fails as on a lost
// device, in a fresh one. Neither is reported if no good record is known, or if it fails for
// another reason.
func (s *search) tryControl() (computes, fails bool, err error) {
	task := s.control()
	if task == nil {
		return false, false, nil
	}
	for range 2 {
		err := s.again(task)
		e := fault.As(err)
		switch {
		case err == nil:
			return true, false, nil
		case e == nil || e.Kind != fault.Device && noRecords(e):
			return false, false, err
		case e.Kind != fault.Device:
			return false, false, nil
		}
		s.worker.host.kill()
	}
	return false, true, nil
}

// again computes a record that is known to be good.
func (s *search) again(task *batchTask) error {
	control := search{worker: s.worker, lane: s.lane, task: task, isControl: true}
	_, err := control.try(0, 1)
	return err
}
