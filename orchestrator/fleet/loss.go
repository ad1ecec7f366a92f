package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

// handleLoss decides what a lost worker means for its task, its device and the job. t is nil
// if it had none. reported: the worker itself reported the cause. A worker that vanished may
// have been killed by a record.
func (s *slotRun) handleLoss(ctx context.Context, t *queue.Task, e *fault.Error, reported bool) (retired bool, err error) {
	s.drop()
	requeue := func() {
		if t != nil {
			s.fleet.queue.GiveBack(*t)
		}
	}
	if s.fleet.suspects.isSick(s.slot.Key()) {
		if t != nil {
			t.Tried = addDevice(t.Tried, s.slot.Key())
		}
		requeue()
		return true, nil
	}
	if e.Kind == fault.Stopped { // the kernel asks for it: nothing is wrong with the worker
		s.fleet.Drain(e, s.fleet.DrainTimeout)
		e = fault.Interrupted.New("%s", e.Message)
	}
	if by := s.member.retiredBy(); by != nil && e.Kind == fault.Worker { // we killed it
		e = by
	}
	if t != nil && e.Kind == fault.Device && e.Sign == fault.Text {
		e = s.doubt(t, e)
	}
	if held := s.member.heldBy(); held != nil && new(judge.Losses).React(e.Kind, s.opened, time.Now()) == judge.Restart {
		e = held // another worker would get a device that is in use
	}
	action := s.losses.React(e.Kind, s.opened, time.Now())
	if reported && t != nil && e.Kind == fault.Incompatible { // the open kernel breaks its contract
		action = judge.GiveUpJob
	}
	switch {
	case action == judge.GiveUpJob:
		requeue()
		return false, e
	case action == judge.Leave, !s.fleet.state.running(): // the task is not retried in this run, and no record is to blame yet
		requeue()
		return true, nil
	}
	retired = action == judge.Retire
	s.reportLoss(e, retired)
	s.fleet.release(ctx, false) // its verdict on the kernel is no longer awaited
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
	case <-time.After(s.losses.BackOff()):
	case <-ctx.Done():
	}
	return false, nil
}

// reportLoss records and reports a lost worker.
func (s *slotRun) reportLoss(e *fault.Error, retired bool) {
	s.member.lost(e, retired)
	s.fleet.ledger.excuse(s.slot.Number, retired)
	job, answers := s.fleet.ledger.counts()
	lost := event.WorkerLost{
		Slot: s.slot.Number, Device: s.slot.Name, Fault: e, Retired: retired,
		NeedsReset: retired && s.member.needsReset(), Job: job, Answers: answers,
	}
	back := &s.back
	if !back.useful {
		back.vain++
	}
	if back.promised = false; retired && !lost.NeedsReset && s.fleet.queue.Continues(back.useful) {
		lost.RetryAfter = back.after(s.fleet.FirstProbe)
		back.promised = back.useful && !s.fleet.roster.openedAt().IsZero() // otherwise the kernel may open nowhere
		back.useful = false
	}
	s.fleet.Emit(lost)
}

// doubt decides about a worker that was lost by what only looks like a lost device, on
// a chunk of which it has computed nothing.
func (s *slotRun) doubt(t *queue.Task, e *fault.Error) *fault.Error {
	key := s.slot.Key()
	again := slices.Contains(t.Doubted, key)
	t.Doubted = addDevice(t.Doubted, key)
	switch (judge.Doubt{
		Confirmed: s.member.retiredBy() != nil, Devices: len(t.Doubted), Again: again,
		Last: len(s.fleet.queue.Untried(addDevice(t.Tried, key))) == 0,
	}).Cause() {
	case judge.DeviceLost:
		return e
	case judge.RecordsFault:
		t.Blame = true
		s.losses = nil // the device is not to blame for the losses that the chunk caused
	}
	return fault.GPULost.Of(fault.Worker, "the kernel reports a lost device, but nothing confirms it: %s", e.Message).WithDetail(e.Detail)
}

// retry requeues a task whose worker was lost, or gives it up. blameless: no record can
// have been the cause.
func (s *slotRun) retry(ctx context.Context, t queue.Task, e *fault.Error, blameless bool) error {
	if !blameless {
		t.Attempts++
	}
	t.Tried = addDevice(t.Tried, s.slot.Key())
	if t.Probe != nil && !blameless {
		s.fleet.suspects.rule(ctx, s.slot.Key(), t, true)
		s.fleet.queue.GiveBack()
		return nil
	}
	if t.Attempts <= s.fleet.Retries {
		s.fleet.queue.GiveBack(t)
		return nil
	}
	why := fault.KernelFails.Of(e.Kind, "given up after %d attempts: %s", t.Attempts, e.Message).WithDetail(e.Detail)
	segment, err := s.fleet.giveUp(ctx, t, why)
	if err != nil {
		s.fleet.queue.GiveBack(t)
		return err
	}
	s.fleet.ledger.hold(segment)
	s.fleet.release(ctx, false)
	s.fleet.Source.Release(t.Chunk)
	s.fleet.queue.GiveBack()
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
	key, registry := s.slot.Key(), s.fleet.Registry
	if !registry.Shared(key) {
		return false
	}
	if capacity, lowered := registry.LowerForOOM(key, exits); lowered {
		s.fleet.Emit(event.Notice{Text: fmt.Sprintf("%s: a record did not fit in memory next to another worker; from now on at most %d at a time", key, capacity)})
	}
	if registry.Yield(key) {
		s.leave(ctx, false)
	}
	return true
}
