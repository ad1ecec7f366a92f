package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// slotRun keeps one slot busy: it starts a worker and gives it one chunk after another.
type slotRun struct {
	job            *job
	slot           Slot
	worker         *workerProcess
	starts         int
	budget         budget
	opened         bool
	probes         int             // how often a lost device was retried
	yielded        bool            // it made room on a shared device
	stuck          []proc.Stuck    // processes of its workers that cannot be killed
	prefetched     *task           // what the worker was given in addition to its current task
	prefetchedRead bool            // the worker has read that, too
	staggerDone    func(open bool) // ends the turn that stagger gave
}

func newSlotRun(j *job, slot Slot) *slotRun { return &slotRun{job: j, slot: slot} }

// run gives its worker tasks until none remain. The caller must then release the
// worker. It returns an error only for what must stop the whole job.
func (s *slotRun) run(ctx context.Context) error {
	for {
		retired, err := s.runUntilRetired(ctx)
		if err != nil || !retired {
			return err
		}
		// The device is lost. It may come back while others compute.
		if !s.awaitProbe(ctx) {
			return nil
		}
	}
}

// runUntilRetired works until no tasks remain or the slot is retired.
func (s *slotRun) runUntilRetired(ctx context.Context) (retired bool, err error) {
	for {
		if e := s.job.retiredBy(s.slot); e != nil && s.probes == 0 { // by another worker on its device
			s.drop()
			s.job.lost(s.slot, e, true, probeAfter(s.probes))
			return true, nil
		}
		if s.worker == nil {
			if e := s.open(ctx); e != nil {
				retired, err := s.handleLoss(ctx, nil, e, true)
				if err != nil {
					return false, err // and no other kernel is opened: the job ends
				}
				if s.staggerDone(false); retired {
					return true, nil
				}
				continue
			}
		}
		t, ok, err := s.nextTask(ctx)
		if err != nil || !ok {
			return false, err
		}
		if retired, err := s.runTask(ctx, t); err != nil || retired || s.yielded {
			return retired, err
		}
	}
}

// nextTask returns the worker's next task: the prefetched one, or the next from the
// queue. It returns false when none remains.
func (s *slotRun) nextTask(ctx context.Context) (task, bool, error) {
	if s.prefetched != nil {
		t := *s.prefetched
		s.prefetched = nil
		if s.prefetchedRead {
			s.prefetchedRead = false
			s.prefetch(ctx, t)
		}
		return t, true, nil
	}
	for {
		s.job.awaitPace(ctx, s.slot)
		s.job.awaitResume(ctx)
		t, ok, err := s.job.queue.take(ctx, s.slot.key(), s.slot.Number)
		if err != nil || !ok {
			return t, ok, err
		}
		if s.job.config.Control.paused() == nil {
			s.assign(t)
			return t, true, nil
		}
		s.job.queue.giveBack(t) // the job was paused while waiting for the task
	}
}

// assign sends the worker a task. A send error means that the worker has exited, which
// runTask notices.
func (s *slotRun) assign(t task) {
	key := s.slot.key()
	_ = s.worker.conn.Send(wire.Message{Assign: &wire.Assign{
		Chunk: t.chunk, Part: s.job.partPath(t), Final: s.job.queue.final(t, key) && !s.job.registry.Shared(key),
		Blame: t.blame,
	}})
}

// prefetch gives the worker, which has read all of its task, another one in advance.
func (s *slotRun) prefetch(ctx context.Context, t task) {
	if s.prefetched != nil { // it has read that, too
		s.prefetchedRead = true
		return
	}
	if !t.fresh() || s.halting() {
		return
	}
	if next, ok := s.job.queue.takeAhead(ctx, s.slot.key(), s.slot.Number); ok {
		s.prefetched = &next
		s.assign(next)
	}
}

// halting reports whether the worker should not get more work for now.
func (s *slotRun) halting() bool {
	return s.job.stopping.Load() || s.job.pausing(s.slot) || s.job.config.Control.paused() != nil
}

// awaitProbe waits until the device may be retried. It returns false if the job ends
// first, and at once if no other device is left to do the work.
func (s *slotRun) awaitProbe(ctx context.Context) bool {
	if s.job.queue.leave(s.slot.key()) == 0 {
		s.job.queue.close()
		return false
	}
	for {
		timer := time.NewTimer(probeAfter(s.probes))
		s.probes++
		select {
		case <-timer.C:
			if heldBy(s.stuck) != nil {
				continue // it would only be lost again
			}
			s.job.queue.join(s.slot.key())
			return true
		case <-s.job.queue.done:
		case <-ctx.Done():
		}
		timer.Stop()
		return false
	}
}

// open starts a worker and waits until its kernel is open or no work remains for it.
func (s *slotRun) open(abortCtx context.Context) *fault.Error {
	ctx, cancel := s.job.queue.whileOpen(abortCtx)
	defer cancel()
	s.staggerDone = s.job.stagger.begin(ctx)
	if ctx.Err() != nil {
		return fault.New(fault.Canceled, "nothing left to do")
	}
	socketDir := filepath.Join(s.job.runDir, fmt.Sprintf("w%d-%d", s.slot.Number, s.starts))
	s.starts++
	if err := os.Mkdir(socketDir, 0o700); err != nil {
		return fault.New(fault.Storage, "make temporary folder: %w", err)
	}
	setup := s.job.setup(socketDir)
	setup.Device = s.slot.device()
	if setup.Proven == nil {
		setup.Proven = s.job.ledger.proof()
	}
	s.job.hold(s.slot)
	started := time.Now()
	worker, err := startWorker(workerOptions{
		binary: s.job.config.WorkerBinary, label: s.slot.Name, setup: setup,
		env: workerEnv(s.slot.Pin, s.slot.Threads), cpus: s.cpus(),
		log: s.job.folder.join("logs", fmt.Sprintf("worker-%d.log", s.slot.Number)),
	})
	if err != nil {
		return fault.As(fault.Wrap(fault.Worker, err))
	}
	s.job.setWorker(s.slot, worker)
	s.worker = worker
	if s.probes == 0 && s.job.retiredBy(s.slot) != nil { // while the worker was starting
		worker.abandon()
	}
	s.job.emit(WorkerStarted{Slot: s.slot.Number, Device: s.slot.Name, PID: worker.pid})
	message, err := worker.receive(ctx)
	switch {
	case ctx.Err() != nil:
		return fault.New(fault.Canceled, "nothing left to do")
	case err != nil:
		return worker.lost(err)
	case message.Failed != nil:
		return cmp.Or(s.checkSources(message.Failed.Sources), message.Failed.Fault)
	}
	if e := s.checkSources(message.Ready.Sources); e != nil {
		return e
	}
	s.opened = true
	s.staggerDone(true)
	s.probes = 0
	s.job.ready(s.slot)
	s.job.emit(WorkerReady{Slot: s.slot.Number, Device: s.slot.Name, Took: time.Since(started)})
	return nil
}

// cpus returns the CPUs near the slot's devices.
func (s *slotRun) cpus() []int {
	if s.job.config.NoAffinity {
		return nil
	}
	var cpus []int
	for _, device := range s.slot.Devices {
		cpus = append(cpus, device.CPUs...)
	}
	return cpus
}

// runTask follows the worker's task to its end: the end of the chunk, or the next
// checkpoint if that comes first.
func (s *slotRun) runTask(ctx context.Context, t task) (retired bool, err error) {
	s.job.assigned(s.slot, t)
	worker, first := s.worker, t.chunk.First
	// A stop or pause may have been sent to the worker before this chunk: repeat it.
	switch {
	case s.job.stopping.Load():
		s.worker.endJob(s.job.config.DrainTimeout)
	case s.halting():
		s.worker.endChunk()
	}
	checkpoint := newCheckpoint(s.job.config.Checkpoint, func() { worker.endOnly(first) })
	defer checkpoint.stop()
	defer s.watchFirst()()
	s.job.emit(ChunkStarted{Slot: s.slot.Number, Device: s.slot.Name, First: t.chunk.First, Records: t.chunk.Records})
	for {
		message, err := s.worker.receive(ctx)
		switch {
		case ctx.Err() != nil:
			s.job.queue.giveBack(t)
			return true, nil
		case err != nil:
			return s.handleLoss(ctx, &t, s.worker.lost(err), false)
		case message.Progress != nil:
			s.job.answered.Store(true)
			checkpoint.batchDone()
			s.job.progress(s.slot, t, *message.Progress)
			s.job.noteMemory(s.slot, message.Progress.Memory)
			s.job.noteFirst(ctx, s.slot, message.Progress.First)
		case message.Search != nil:
			s.job.answered.Store(true)
			s.job.noteSearch(ctx, s.slot, *message.Search)
		case message.ReadComplete != nil:
			s.prefetch(ctx, t)
		case message.ReturnPrefetched != nil:
			if s.prefetched != nil {
				s.job.queue.giveBack(*s.prefetched)
			}
			s.prefetched, s.prefetchedRead = nil, false
		case message.Remainder != nil:
			if err := s.job.handedBack(s.slot, &t, *message.Remainder); err != nil {
				return false, err
			}
		case message.Done != nil:
			s.job.answered.Store(true)
			if e := s.checkSources(message.Done.Sources); e != nil {
				return s.handleLoss(ctx, &t, e, true)
			}
			s.job.warn(s.slot, message.Done.Warnings)
			checkpoint.stop() // or it would end the next chunk
			s.job.noteFirst(ctx, s.slot, message.Done.First)
			again := message.Done.Elsewhere != nil && s.makeRoom(ctx)
			return false, s.job.commit(ctx, s.slot, t, *message.Done, again)
		case message.Failed != nil:
			return s.handleLoss(ctx, &t, cmp.Or(s.checkSources(message.Failed.Sources), message.Failed.Fault), true)
		}
	}
}

// checkSources checks the files that the worker reports. If they differ from the job's,
// the job stops and the worker's results are discarded; the returned fault is why the
// worker is lost.
func (s *slotRun) checkSources(list []wire.Source) *fault.Error {
	e := s.job.noteSources(list)
	if e == nil || e.Kind != fault.Stopped {
		return e
	}
	s.job.halt(e)
	return fault.New(fault.Canceled, "%s", e.Message)
}

// makeRoom handles a record that did not fit in the memory of a device that several
// workers share: this worker leaves for good before the record is retried. It reports
// whether the device was shared.
func (s *slotRun) makeRoom(ctx context.Context) bool {
	key := s.slot.key()
	if !s.job.registry.Shared(key) {
		return false
	}
	capacity, lowered := s.job.registry.LowerForOOM(key)
	if lowered {
		s.job.emit(Notice{Text: fmt.Sprintf("%s: a record did not fit in memory next to another worker; from now on at most %d at a time", key, capacity)})
	}
	if s.job.registry.Yield(key) {
		s.yielded = true
		s.release(ctx)
		s.job.leave(s.slot)
		s.job.queue.leave(key)
	}
	return true
}

// handleLoss decides what a lost worker means for its task, its device and the job.
// reported: the worker itself reported the cause. A worker that vanished may have been
// killed by a record.
func (s *slotRun) handleLoss(ctx context.Context, t *task, e *fault.Error, reported bool) (retired bool, err error) {
	s.drop()
	if by := s.job.retiredBy(s.slot); by != nil && e.Kind == fault.Worker { // we killed it
		e = by
	}
	if t != nil && e.Kind == fault.Device && e.Sign == fault.Text {
		e = s.doubt(t, e)
	}
	if held := heldBy(s.stuck); held != nil && decide(e.Kind, s.opened, &budget{}, time.Now()) == restart {
		e = held // another worker would get a device that is in use
	}
	action := decide(e.Kind, s.opened, &s.budget, time.Now())
	if action == giveUpJob || action == leave {
		if t != nil {
			s.job.queue.giveBack(*t)
		}
		if action == leave {
			return true, nil
		}
		return false, e
	}
	if s.job.stopping.Load() { // the task is not retried in this run, and no record is to blame yet
		if t != nil {
			s.job.queue.giveBack(*t)
		}
		return true, nil
	}
	retired = action == retire
	s.job.lost(s.slot, e, retired, probeAfter(s.probes))
	s.job.releaseHeld(ctx, false) // its verdict on the kernel is no longer awaited
	if t != nil {
		blameless := e.Kind == fault.Device || reported && e.Kind == fault.Worker
		if err := s.job.retry(ctx, s.slot, *t, e, blameless); err != nil {
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

// doubt decides about a worker that was lost by what only looks like a lost device, on
// a chunk of which it has computed nothing.
func (s *slotRun) doubt(t *task, e *fault.Error) *fault.Error {
	key := s.slot.key()
	d := doubted{
		confirmed: s.job.retiredBy(s.slot) != nil,
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

// drop makes sure that the worker has exited.
func (s *slotRun) drop() {
	if s.worker != nil {
		s.worker.kill()
		s.stuck = append(s.stuck, s.worker.stuck...)
		s.job.stuck.add(s.worker.stuck)
		s.job.setWorker(s.slot, nil)
		s.worker = nil
	}
	if s.prefetched != nil {
		s.prefetched.alone = true
		s.job.queue.giveBack(*s.prefetched)
	}
	s.prefetched, s.prefetchedRead = nil, false
}

// release ends the slot's worker, gracefully unless the job is aborted.
func (s *slotRun) release(ctx context.Context) {
	if s.worker == nil {
		return
	}
	if ctx.Err() == nil && s.prefetched == nil { // or it would compute that first
		s.worker.end()
	}
	s.drop()
}
