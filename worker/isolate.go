package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// rerun computes a batch on its own, and finds the records that make it fail, so that only those
// fail. It bisects the batch, and then every half that fails again, until each bad record is alone.
// failure is how the batch failed before, or nil if it has not been tried on its own.
//
// If the kernel process died with the batch, rerun first restarts it and tries the whole
// batch once more, because the crash may have been a coincidence. If a signal from outside
// killed it, rerun tries a third time: the plan decides which records are computed
// together. A batch that the kernel rejected is not retried whole, since the kernel would
// reject it again. Neither is one that hung: its pieces settle the question sooner.
//
// A single record is blamed for a crash only if the process ended itself or nothing else
// explains it (confirm.go); a fault of another worker may on a GPU with MPS (alone.go). A process that ran out of host memory may have leaked it, so a
// fresh one tries the same records before the batch is split and before a record is blamed.
func (c *computing) rerun(task *batchTask, failure *fault.Error) error {
	task.verdicts = make([]verdict, len(task.sent))
	l, host := task.lane, c.worker.host
	s := &search{worker: c.worker, lane: l, task: task, fresh: !host.warm}
	defer host.alone.end()
	first := failure
	if failure != nil && (failure.Kind == fault.Crash || failure.Kind == fault.Timeout && len(task.sent) == 1) {
		failure = nil
	}
	failure, err := s.verifyDevice(failure)
	if err == nil {
		err = host.begin(first, s.rest)
	}
	if err == nil {
		err = s.prove()
	}
	if err == nil {
		err = s.settle(0, len(task.sent), failure)
	}
	if err == nil {
		err = s.reportBlameless()
	}
	var elsewhere *elsewhereError
	switch {
	case err == nil:
		return l.pass(task)
	case errors.As(err, &elsewhere):
		// The chunk ends before the record, in the middle of a group; see finishGroup. Records of other
		// batches may come before it.
		task.group.endBefore(task.position(elsewhere.at))
		l.ended = true
		return l.pass(task)
	case errors.Is(err, errCrowded):
		l.crowded = true
		l.interrupt()
		return nil
	case errors.Is(err, errInterrupted):
		l.interrupt()
		return nil
	}
	return err
}

var (
	errInterrupted = errors.New("the job is stopping")
	errCrowded     = errors.New("too many workers share the memory")
)

// search is the isolation of one batch.
type search struct {
	worker *Worker
	lane   *lane
	task   *batchTask
	// fresh: the process that failed last had not computed anything before.
	fresh bool
	// whole is how the batch failed as a whole; nil if it did not.
	whole *fault.Error
	// killed: a signal from outside killed the process that tried the whole batch again.
	killed bool
	// alone is how many records succeeded alone.
	alone int
	// isControl: the batch is a known good record, tried to see whether the device works.
	isControl bool
}

// settle decides the verdicts of the records from lo to hi. failure is how they failed as
// one batch, or nil if that has not been tried.
func (s *search) settle(lo, hi int, failure *fault.Error) error {
	if failure == nil {
		results, err := s.try(lo, hi)
		if err == nil {
			s.pass(lo, hi, results)
			if hi-lo == 1 {
				s.alone++
			}
			return nil
		}
		if failure = fault.As(err); failure == nil {
			return err
		}
	}
	if noRecords(failure) {
		return failure
	}
	if s.worker.sharing.Load() && (failure.Sign == fault.HostMemory || failure.Kind == fault.OOM) {
		return s.yield(failure)
	}
	switch {
	case failure.Sign == fault.HostMemory:
		s.worker.host.kill() // frees what it leaked
		if !s.fresh {
			return s.settle(lo, hi, nil)
		}
		s.worker.sizes.shrink(s.task.loadOf(lo, hi))
		if hi-lo == 1 {
			failure = outOfMemory("out of host memory, even alone in a fresh process", failure)
		}
	case failure.Kind == fault.OOM:
		if hi-lo == 1 && !s.lane.Final {
			return &elsewhereError{failure, lo}
		}
		s.worker.sizes.shrink(s.task.loadOf(lo, hi))
		// With less fragmentation the next, smaller batch may fit. A failure only costs
		// time.
		_ = s.worker.host.trim(s.lane.ctx)
		if hi-lo == 1 {
			failure = outOfMemory("out of device memory, even alone", failure)
		}
	case failure.Sign == fault.Outside && hi-lo > 1 && hi-lo == len(s.task.sent) && !s.killed:
		s.killed = true
		return s.settle(lo, hi, nil)
	case failure.Sign == fault.Outside && hi-lo == 1:
		var err error
		if failure, err = s.confirm(lo, failure); failure == nil {
			return err
		}
	}
	if hi-lo == 1 {
		s.task.verdicts[lo] = verdict{fault: s.withWhole(failure)}
		s.lane.out.suspect(&s.lane.out.suspects.isolated, s.task.batch, s.task.sent[lo], failure)
		s.worker.log.Warn("record failed", "line", s.line(lo), "kind", failure.Kind, "error", failure.Message)
		return nil
	}
	if whole := hi-lo == len(s.task.sent); whole {
		s.whole = failure
		if err := s.sample(failure); err != nil {
			return err
		}
	}
	return s.split(lo, hi, failure.Kind)
}

// yield ends the chunk before a batch that did not fit next to the workers that share the
// memory: the batch is not too large, there are too many workers.
func (s *search) yield(failure *fault.Error) error {
	s.worker.log.Warn("a batch did not fit next to other workers", "error", failure.Message)
	if failure.Sign == fault.HostMemory {
		s.worker.host.kill() // frees what it leaked
	} else {
		_ = s.worker.host.trim(s.lane.ctx) // a failure only costs time
	}
	return errCrowded
}

// pass assigns results to the records from lo to hi.
func (s *search) pass(lo, hi int, results *plugins.Results) {
	for i := lo; i < hi; i++ {
		s.task.verdicts[i] = verdict{results: results, index: i - lo}
	}
}

// withWhole adds how the batch failed as a whole to the failure of one of its records.
func (s *search) withWhole(failure *fault.Error) *fault.Error {
	if s.whole == nil || s.whole.Kind != failure.Kind || failure.Kind != fault.Batch {
		return failure
	}
	return fault.As(plugins.WithWhole(failure, s.whole.Message, len(s.task.sent)))
}

// reportBlameless reports, once in the worker's life, a batch that failed as a whole although
// none of its records fails. It tries the batch once more: the failure may have been a coincidence.
func (s *search) reportBlameless() error {
	w, n := s.worker, len(s.task.sent)
	failed := func(v verdict) bool { return v.fault != nil || v.results.At(v.index).Raised != nil }
	if w.blamelessReported || s.whole == nil || s.whole.Kind != fault.Batch || slices.ContainsFunc(s.task.verdicts, failed) {
		return nil
	}
	_, err := s.try(0, n)
	failure := fault.As(err)
	switch {
	case err == nil:
		return nil
	case failure == nil || noRecords(failure):
		return err
	case failure.Kind != fault.Batch:
		return nil
	}
	w.blamelessReported = true
	w.send(wire.Message{Search: &wire.Search{Blameless: &wire.Blameless{Fault: failure, Records: n, Alone: !w.batchPassed && 2*s.alone > n}}})
	return nil
}

// outOfMemory returns the failure of a record that does not fit in memory. The framework's
// message becomes the detail because its figures differ from run to run.
func outOfMemory(message string, failure *fault.Error) *fault.Error {
	return fault.OutOfMemory.New("%s", message).
		WithDetail(strings.TrimSpace(failure.Message + "\n" + failure.Detail)).InStep(failure.Step)
}

// noRecords reports whether a failure cannot be blamed on any record.
func noRecords(failure *fault.Error) bool {
	switch failure.Kind {
	case fault.Device, fault.Worker, fault.Incompatible, fault.Storage, fault.Canceled, fault.NoDevice, fault.Stopped:
		return true
	}
	return false
}

// split settles the records from lo to hi in pieces. Halves find the bad record with the
// fewest restarts. A hang is split into quarters, because a good piece costs next to
// nothing and a bad one its whole time limit.
func (s *search) split(lo, hi int, kind fault.Kind) error {
	pieces := 2
	if kind == fault.Timeout {
		pieces = 4
	}
	n := hi - lo
	for i := range pieces {
		from, to := lo+n*i/pieces, lo+n*(i+1)/pieces
		if from == to {
			continue
		}
		if err := s.settle(from, to, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) line(i int) int64 { return s.task.batch.Records[s.task.sent[i]].Line }

// try computes the records from lo to hi as one batch, in a fresh kernel process if the
// last one was lost.
func (s *search) try(lo, hi int) (*plugins.Results, error) {
	l, host := s.lane, s.worker.host
	if closed(l.worker.stops.jobStopped) {
		return nil, errInterrupted
	}
	for l.worker.pace.share() <= 0 { // the device is too hot
		if err := s.rest(poll); err != nil {
			return nil, err
		}
	}
	if host.dead() {
		host.kill()
	}
	if host.process == nil {
		l.worker.computing.giveBack()
	}
	l.out.stats.Retries++
	overdue, cancelOverdue := l.worker.stops.untilOverdue(l.ctx)
	defer cancelOverdue()
	restarted, err := host.alive(overdue)
	if restarted {
		l.out.stats.Restarts++
	}
	if err != nil {
		return nil, s.unlessOverdue(err)
	}
	s.fresh = !host.warm
	of := s.task.loadOf(lo, hi)
	limit := host.limits.piece(of, !host.warm)
	if whole := hi-lo == len(s.task.sent); whole || hi-lo == 1 {
		limit = host.limits.batch(of, !host.warm)
	}
	ctx, cancel := context.WithTimeout(overdue, limit)
	defer cancel()
	started := time.Now()
	batch := s.task.toCompute(lo, hi)
	if s.task.isolation == 0 { // otherwise the kernel has tried to isolate the records
		batch = batch.WithIsolation(host.isolation(of))
	}
	results, err := plugins.Call(ctx, host.process, batch)
	took := time.Since(started)
	l.out.addBusy(took)
	switch {
	case err == nil && results.Isolated():
		s.task.isolated(s.worker, lo, results, took)
	case err == nil:
		host.good(took, of)
		l.worker.proof.keep(s.task, lo)
	case errors.Is(err, context.DeadlineExceeded) && l.ctx.Err() == nil:
		err = host.tooLong(limit)
	default:
		err = s.unlessOverdue(err)
	}
	if failure := fault.As(err); failure != nil {
		if failure, err = s.verifyDevice(failure); err == nil {
			err = cmp.Or(host.begin(failure, s.rest), error(failure))
		}
	}
	return results, err
}

// unlessOverdue returns err, unless the job is stopping and its drain timeout has expired.
// In that case it kills the kernel and abandons what it was computing.
func (s *search) unlessOverdue(err error) error {
	if !closed(s.worker.stops.overdue) {
		return err
	}
	s.worker.host.kill()
	return errInterrupted
}

// elsewhereError means that a record does not fit in this device's memory even alone;
// another device may have more.
type elsewhereError struct {
	fault *fault.Error
	at    int // position in sent
}

func (e *elsewhereError) Error() string { return e.fault.Message }
