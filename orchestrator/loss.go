package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// handleLoss decides what a lost worker means for its task, its device and the job.
// reported: the worker itself reported the cause. A worker that vanished may have been
// killed by a record.
func (s *slotRun) handleLoss(ctx context.Context, t *task, e *fault.Error, reported bool) (retired bool, err error) {
	s.drop()
	if s.job.suspects.isSick(s.slot.key()) {
		if t != nil {
			t.tried = addDevice(t.tried, s.slot.key())
			s.job.queue.giveBack(*t)
		}
		return true, nil
	}
	if e.Kind == fault.Stopped { // the kernel asks for it: nothing is wrong with the worker
		s.job.drain(e)
		e = fault.New(fault.Canceled, "%s", e.Message)
	}
	if by := s.job.fleet.retiredBy(s.slot); by != nil && e.Kind == fault.Worker { // we killed it
		e = by
	}
	if t != nil && e.Kind == fault.Device && e.Sign == fault.Text {
		e = s.doubt(t, e)
	}
	if held := heldBy(s.stuck); held != nil && decide(e.Kind, s.opened, &budget{}, time.Now()) == restart {
		e = held // another worker would get a device that is in use
	}
	action := decide(e.Kind, s.opened, &s.budget, time.Now())
	if reported && t != nil && e.Kind == fault.Incompatible { // the open kernel breaks its contract
		action = giveUpJob
	}
	if action == giveUpJob || action == leave {
		if t != nil {
			s.job.queue.giveBack(*t)
		}
		if action == leave {
			return true, nil
		}
		return false, e
	}
	if !s.job.state.running() { // the task is not retried in this run, and no record is to blame yet
		if t != nil {
			s.job.queue.giveBack(*t)
		}
		return true, nil
	}
	retired = action == retire
	s.reportLoss(e, retired)
	s.job.releaseHeld(ctx) // its verdict on the kernel is no longer awaited
	if t != nil {
		blameless := e.Kind == fault.Device || reported && e.Kind == fault.Worker
		if err := s.retry(ctx, *t, e, blameless); err != nil {
			return false, err
		}
	}
	if retired {
		return true, nil
	}
	select {
	case <-time.After(s.budget.backOff()):
	case <-ctx.Done():
	}
	return false, nil
}

// reportLoss records and reports a lost worker.
func (s *slotRun) reportLoss(e *fault.Error, retired bool) {
	s.job.fleet.lost(s.slot, e, retired)
	s.job.ledger.excuse(s.slot.Number, retired)
	event := WorkerLost{
		Slot: s.slot.Number, Device: s.slot.Name, Fault: e, Retired: retired,
		NeedsReset: retired && s.job.fleet.needsReset(s.slot), Job: s.job.ledger.done(), Answers: s.job.ledger.answered(),
	}
	if !s.useful {
		s.vain++
	}
	if s.promised = false; retired && !event.NeedsReset && s.job.queue.continues(s.useful) {
		event.RetryAfter = probeAfter(s.job.config.firstProbe, s.probes+s.vain)
		s.promised = s.useful && s.job.fleet.hasOpened() // otherwise the kernel may open nowhere
		s.useful = false
	}
	s.job.emit(event)
}

// doubt decides about a worker that was lost by what only looks like a lost device, on
// a chunk of which it has computed nothing.
func (s *slotRun) doubt(t *task, e *fault.Error) *fault.Error {
	key := s.slot.key()
	d := doubted{
		confirmed: s.job.fleet.retiredBy(s.slot) != nil,
		again:     slices.Contains(t.doubted, key),
		last:      s.job.queue.final(*t, key),
	}
	t.doubted = addDevice(t.doubted, key)
	d.devices = len(t.doubted)
	switch d.decide() {
	case deviceLost:
		return e
	case recordsFault:
		t.blame = true
		s.budget = budget{} // the device is not to blame for the losses that the chunk caused
	}
	return fault.New(fault.Worker, "the kernel reports a lost device, but nothing confirms it: %s", e.Message).WithDetail(e.Detail)
}

// retry requeues a task whose worker was lost, or gives it up. blameless: no record can
// have been the cause.
func (s *slotRun) retry(ctx context.Context, t task, e *fault.Error, blameless bool) error {
	if !blameless {
		t.attempts++
	}
	t.tried = addDevice(t.tried, s.slot.key())
	if t.probe != nil && !blameless {
		s.job.rule(ctx, s.slot, t, true)
		s.job.queue.finish()
		return nil
	}
	if t.attempts <= max(0, s.job.config.Failures.Retries) {
		s.job.queue.giveBack(t)
		return nil
	}
	why := fault.New(e.Kind, "given up after %d attempts: %s", t.attempts, e.Message).WithDetail(e.Detail)
	segment, err := s.job.giveUp(ctx, t, why)
	if err != nil {
		s.job.queue.giveBack(t)
		return err
	}
	s.job.ledger.hold(segment)
	s.job.releaseHeld(ctx)
	s.job.source.Release(t.chunk)
	s.job.queue.finish()
	return nil
}

func addDevice(list []string, device string) []string {
	if slices.Contains(list, device) {
		return list
	}
	return append(slices.Clone(list), device)
}

// makeRoom handles a record that did not fit in the memory of a device that several
// workers share: this worker leaves for good before the record is retried. It reports
// whether the device was shared. exits is how many of its workers had exited before.
func (s *slotRun) makeRoom(ctx context.Context, exits int) bool {
	key := s.slot.key()
	if !s.job.registry.Shared(key) {
		return false
	}
	capacity, lowered := s.job.registry.LowerForOOM(key, exits)
	if lowered {
		s.job.emit(Notice{Text: fmt.Sprintf("%s: a record did not fit in memory next to another worker; from now on at most %d at a time", key, capacity)})
	}
	if s.job.registry.Yield(key) {
		s.leave(ctx)
	}
	return true
}

// leave removes the slot, which has no place in the registry any more, from the job. The caller
// must report it, after the results of its worker.
func (s *slotRun) leave(ctx context.Context) {
	s.left = true
	s.release(ctx)
	s.job.registry.Exited(s.slot.key())
	s.job.fleet.leave(s.slot)
	s.job.ledger.excuse(s.slot.Number, true)
	s.job.queue.leave(s.slot.key())
}

func (s *slotRun) reportLeft() {
	s.job.emit(WorkerLeft{Slot: s.slot.Number, Device: s.slot.Name, Job: s.job.ledger.done(), Answers: s.job.ledger.answered()})
}
