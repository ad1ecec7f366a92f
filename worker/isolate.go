package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// isolate finds the records that a failed batch fails by, and only those fail:
// it is halved, and the halves that fail again are halved again, until the bad
// records stand alone. err is how the batch failed as a whole.
//
// A kernel process that died with the batch is started again first. That may
// have been chance, so the whole batch gets one more try before it is halved;
// a kernel that said no to the batch would say no again. One that hung is not
// waited for once more either: its pieces tell as much, and sooner.
//
// A record alone is blamed for a death only if the process ended itself, or nothing
// else explains it (confirm.go). A process that has used up the host's memory may
// have leaked it: a fresh one tries the same again before the batch is made smaller,
// and before a record is blamed.
func (r *chunkRun) isolate(job *work, err error) error {
	failure := fault.As(err)
	if failure == nil {
		return err // the end of the context
	}
	return r.rerun(job, failure)
}

// takeUp handles a batch that was in flight behind a failed one of the same chunk.
func (r *chunkRun) takeUp(job *work, outcome error) error {
	if r.elsewhere != nil || r.interrupted { // the chunk ended before it
		return nil
	}
	if outcome == nil {
		return r.pass(job)
	}
	failure := fault.As(outcome)
	if failure != nil && (failure.Kind == fault.Crash || failure.Sign == fault.HostMemory) {
		failure = nil // collateral: it has not been tried by itself
	}
	return r.rerun(job, failure)
}

// rerun computes a batch by itself. failure is how it failed before, nil if it
// has not been tried by itself.
func (r *chunkRun) rerun(job *work, failure *fault.Error) error {
	job.verdicts = make([]verdict, len(job.sent))
	s := &search{run: r, job: job, fresh: !r.worker.host.warm}
	if failure != nil && (failure.Kind == fault.Crash || failure.Kind == fault.Timeout && len(job.sent) == 1) {
		failure = nil
	}
	failure, err := s.doubt(failure)
	if err == nil {
		err = s.prove()
	}
	if err == nil {
		err = s.settle(0, len(job.sent), failure)
	}
	var elsewhere *elsewhereError
	switch {
	case err == nil:
		return r.pass(job)
	case errors.As(err, &elsewhere):
		return r.endBefore(job, elsewhere)
	case errors.Is(err, errInterrupted):
		r.interrupted, r.ended = true, true
		return nil
	}
	return err
}

var errInterrupted = errors.New("the job stops")

// endBefore ends the chunk in the middle of a batch, before a record that is for
// another device.
func (r *chunkRun) endBefore(job *work, e *elsewhereError) error {
	at := job.sent[e.at]
	suspect, behind := job.batch.Alone(at)
	job.ready, job.sent, job.verdicts = at, job.sent[:e.at], job.verdicts[:e.at]
	if err := r.pass(job); err != nil {
		return err
	}
	r.elsewhere, r.rest, r.ended = &suspect, behind, true
	return nil
}

// search is the isolation of one batch.
type search struct {
	run *chunkRun
	job *work
	// fresh: the process that failed last had computed nothing before.
	fresh bool
	// whole is how the batch failed as a whole; nil if it has not.
	whole *fault.Error
	// isControl: the batch is a good record, tried to see whether the device is fine.
	isControl bool
}

// settle gives the records from lo to hi their verdicts. failure is how they
// failed as one batch, nil if that has not been tried.
func (s *search) settle(lo, hi int, failure *fault.Error) error {
	if failure == nil {
		results, err := s.try(lo, hi)
		if err == nil {
			s.pass(lo, hi, results)
			return nil
		}
		if failure = fault.As(err); failure == nil {
			return err
		}
	}
	if noRecords(failure) {
		return failure
	}
	switch {
	case failure.Sign == fault.HostMemory:
		s.run.worker.host.kill() // what it leaked goes with it
		if !s.fresh {
			return s.settle(lo, hi, nil)
		}
		s.run.worker.sizes.shrink(hi - lo)
		if hi-lo == 1 {
			failure = outOfMemory("out of host memory, even alone in a fresh process", failure)
		}
	case failure.Kind == fault.OOM:
		if hi-lo == 1 && !s.run.final {
			return &elsewhereError{failure, lo}
		}
		s.run.worker.sizes.shrink(hi - lo)
		// The next, smaller batch may then find its memory in one piece; what that
		// costs if it fails is only time.
		_ = s.run.worker.host.trim(s.run.ctx)
		if hi-lo == 1 {
			failure = outOfMemory("out of device memory, even alone", failure)
		}
	case failure.Sign == fault.Outside && hi-lo == 1:
		var err error
		if failure, err = s.confirm(lo, failure); failure == nil {
			return err
		}
	}
	if hi-lo == 1 {
		s.job.verdicts[lo] = verdict{fault: s.withWhole(failure)}
		s.run.worker.log.Warn("record failed", "line", s.line(lo), "kind", failure.Kind, "error", failure.Message)
		return nil
	}
	if whole := hi-lo == len(s.job.sent); whole {
		s.whole = failure
		if err := s.sample(failure); err != nil {
			return err
		}
	}
	return s.split(lo, hi, failure.Kind)
}

// pass gives the records from lo to hi their results.
func (s *search) pass(lo, hi int, results *plugins.Results) {
	for i := lo; i < hi; i++ {
		s.job.verdicts[i] = verdict{results: results, index: i - lo}
	}
}

// withWhole adds how the batch failed as a whole, where that reads otherwise than the
// failure of its record: 127 values for 128 records, and none for one. The message itself
// depends on the record alone.
func (s *search) withWhole(failure *fault.Error) *fault.Error {
	if s.whole == nil || s.whole.Kind != failure.Kind || s.whole.Message == failure.Message || failure.Kind != fault.Batch {
		return failure
	}
	text := fmt.Sprintf("the batch of %d records failed with: %s", len(s.job.sent), s.whole.Message)
	return failure.WithDetail(strings.TrimSpace(failure.Detail + "\n" + text))
}

// outOfMemory is the failure of a record for which the memory does not suffice. The
// messages of frameworks hold figures that differ from run to run.
func outOfMemory(message string, failure *fault.Error) *fault.Error {
	return fault.New(fault.OOM, "%s", message).
		WithDetail(strings.TrimSpace(failure.Message + "\n" + failure.Detail)).InStep(failure.Step)
}

// noRecords reports a failure that no record can be blamed for.
func noRecords(failure *fault.Error) bool {
	switch failure.Kind {
	case fault.Device, fault.Worker, fault.Incompatible, fault.Storage, fault.Canceled, fault.NoDevice:
		return true
	}
	return false
}

// split settles the records from lo to hi in pieces: halves, which find the record
// with the fewest restarts; or quarters if they hang, where a good piece costs next
// to nothing and a bad one all of its limit.
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

func (s *search) line(i int) int64 { return s.job.batch.Records[s.job.sent[i]].Line }

// try computes the records from lo to hi as one batch, with a fresh kernel
// process if the last one is gone.
func (s *search) try(lo, hi int) (*plugins.Results, error) {
	r, host := s.run, s.run.worker.host
	if closed(r.worker.stops.halted) {
		return nil, errInterrupted
	}
	if host.process == nil || r.dead() {
		r.worker.computing.share()
	}
	r.stats.Retries++
	if r.dead() {
		host.kill()
	}
	overdue, cancelOverdue := r.worker.stops.untilOverdue(r.ctx)
	defer cancelOverdue()
	restarted, err := host.alive(overdue)
	if restarted {
		r.stats.Restarts++
	}
	if err != nil {
		return nil, s.unlessOverdue(err)
	}
	s.fresh = !host.warm
	of := loadOf(s.job.records[lo:hi])
	limit := host.limits.piece(of, !host.warm)
	if whole := hi-lo == len(s.job.sent); whole || hi-lo == 1 {
		limit = host.limits.batch(of, !host.warm)
	}
	ctx, cancel := context.WithTimeout(overdue, limit)
	defer cancel()
	started := time.Now()
	results, err := plugins.Call(ctx, host.process, s.job.toCompute(lo, hi))
	took := time.Since(started)
	r.stats.Busy += took
	switch {
	case err == nil:
		host.good(took, of)
		r.worker.keepControl(s.job, lo)
	case errors.Is(err, context.DeadlineExceeded) && r.ctx.Err() == nil:
		err = host.tooLong(limit)
	default:
		err = s.unlessOverdue(err)
	}
	if failure := fault.As(err); failure != nil {
		if failure, err = s.doubt(failure); err == nil {
			err = failure
		}
	}
	return results, err
}

// unlessOverdue is err, unless the job stops and the time for it is over. Whatever the
// kernel is at then is lost.
func (s *search) unlessOverdue(err error) error {
	if !closed(s.run.worker.stops.overdue) {
		return err
	}
	s.run.worker.host.kill()
	return errInterrupted
}

// dead reports whether the kernel process has ended.
func (r *chunkRun) dead() bool {
	process := r.worker.host.process
	if process == nil {
		return false
	}
	select {
	case <-process.Done():
		return true
	default:
		return process.Broken()
	}
}

// elsewhereError: a record does not fit this device's memory even alone; another
// may have more.
type elsewhereError struct {
	fault *fault.Error
	at    int // among those sent
}

func (e *elsewhereError) Error() string { return e.fault.Message }
