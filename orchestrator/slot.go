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

// slotRun keeps one slot at work: it has a worker, or gets one, and gives it one
// chunk after the other.
type slotRun struct {
	job    *job
	slot   Slot
	worker *workerProcess
	starts int
	budget budget
	opened bool
	probes int             // how often a lost device was tried again
	left   bool            // it made room on a device that several share
	stuck  []proc.Stuck    // what its workers left, and nobody can kill
	next   *task           // what the worker was given behind the task at hand
	near   bool            // it has read that, too
	yield  func(open bool) // ends the turn that stagger gave
}

func newSlotRun(j *job, slot Slot) *slotRun { return &slotRun{job: j, slot: slot} }

// run gives its worker work as long as there is some; it is for the caller to release
// that then. It returns an error only for what must stop the whole job.
func (s *slotRun) run(now context.Context) error {
	for {
		retired, err := s.turn(now)
		if err != nil || !retired {
			return err
		}
		// The device is lost. As long as others go on it may come back.
		if !s.awaitProbe(now) {
			return nil
		}
	}
}

// turn works until there is nothing left, or the slot is retired.
func (s *slotRun) turn(now context.Context) (retired bool, err error) {
	for {
		if e := s.job.retiredBy(s.slot); e != nil && s.probes == 0 { // by another worker of its device
			s.drop()
			s.job.lost(s.slot, e, true, probeAfter(s.probes))
			return true, nil
		}
		if s.worker == nil {
			if e := s.open(now); e != nil {
				retired, err := s.lose(now, nil, e, true)
				if err != nil {
					return false, err // and nobody else opens: the job is over
				}
				if s.yield(false); retired {
					return true, nil
				}
				continue
			}
		}
		t, ok, err := s.nextTask(now)
		if err != nil || !ok {
			return false, err
		}
		if retired, err := s.follow(now, t); err != nil || retired || s.left {
			return retired, err
		}
	}
}

// nextTask returns the task that the worker is at: the one it was given ahead, or else
// the next that there is for it. It returns false when there is none left.
func (s *slotRun) nextTask(now context.Context) (task, bool, error) {
	if s.next != nil {
		t := *s.next
		s.next = nil
		if s.near {
			s.near = false
			s.giveAhead(now, t)
		}
		return t, true, nil
	}
	for {
		s.job.awaitPace(now, s.slot)
		s.job.awaitResume(now)
		t, ok, err := s.job.queue.take(now, s.slot.key(), s.slot.Number)
		if err != nil || !ok {
			return t, ok, err
		}
		if s.job.config.Control.paused() == nil {
			s.assign(t)
			return t, true, nil
		}
		s.job.queue.giveBack(t) // it was paused while it waited for the task
	}
}

// assign gives the worker a task. If it cannot be told, it is gone, which whoever
// follows the task will see.
func (s *slotRun) assign(t task) {
	key := s.slot.key()
	_ = s.worker.conn.Send(wire.Message{Assign: &wire.Assign{
		Chunk: t.chunk, Part: s.job.partPath(t), Spare: s.job.output.TakeSpare(), Final: s.job.queue.final(t, key) && !s.job.registry.Shared(key),
		Blame: t.blame,
	}})
}

// giveAhead gives the worker, who has read all of its task, another behind it.
func (s *slotRun) giveAhead(now context.Context, t task) {
	if s.next != nil { // it has read that, too
		s.near = true
		return
	}
	if !t.fresh() || s.halting() {
		return
	}
	if next, ok := s.job.queue.takeAhead(now, s.slot.key(), s.slot.Number); ok {
		s.next = &next
		s.assign(next)
	}
}

// halting reports whether the worker should not go on for now.
func (s *slotRun) halting() bool {
	return s.job.stopping.Load() || s.job.pausing(s.slot) || s.job.config.Control.paused() != nil
}

// awaitProbe waits until the device may be tried again; false if the job ends
// before. It ends at once when no device is left that could do the work.
func (s *slotRun) awaitProbe(now context.Context) bool {
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
		case <-s.job.queue.over:
		case <-now.Done():
		}
		timer.Stop()
		return false
	}
}

// open starts a worker and waits until its kernel is open, or until there is
// nothing left to do for it.
func (s *slotRun) open(now context.Context) *fault.Error {
	ctx, cancel := s.job.queue.whileOpen(now)
	defer cancel()
	s.yield = s.job.stagger.begin(ctx)
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
		setup.Proven = s.job.proof()
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
	if s.probes == 0 && s.job.retiredBy(s.slot) != nil { // while the worker was started
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
	s.yield(true)
	s.probes = 0
	s.job.ready(s.slot)
	s.job.emit(WorkerReady{Slot: s.slot.Number, Device: s.slot.Name, Took: time.Since(started)})
	return nil
}

// cpus are those near the slot's devices.
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

// follow follows the worker's task to its end: the end of the chunk, or of as much of
// it as is computed before the next checkpoint.
func (s *slotRun) follow(now context.Context, t task) (retired bool, err error) {
	s.job.assigned(s.slot, t)
	worker, first := s.worker, t.chunk.First
	// A stop or a pause that came before the chunk was told to the worker before it,
	// too.
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
		message, err := s.worker.receive(now)
		switch {
		case now.Err() != nil:
			s.job.queue.giveBack(t)
			return true, nil
		case err != nil:
			return s.lose(now, &t, s.worker.lost(err), false)
		case message.Progress != nil:
			s.job.answered.Store(true)
			checkpoint.begun()
			s.job.progress(s.slot, t, message.Progress.Counts)
			s.job.noteMemory(s.slot, message.Progress.Memory)
			s.job.noteFirst(now, s.slot, message.Progress.First)
		case message.Search != nil:
			s.job.answered.Store(true)
			s.job.noteSearch(now, s.slot, *message.Search)
		case message.Near != nil:
			s.giveAhead(now, t)
		case message.Back != nil:
			if s.next != nil {
				s.job.queue.giveBack(*s.next)
			}
			s.next, s.near = nil, false
		case message.Left != nil:
			if err := s.job.handedBack(s.slot, &t, *message.Left); err != nil {
				return false, err
			}
		case message.Done != nil:
			s.job.answered.Store(true)
			if e := s.checkSources(message.Done.Sources); e != nil {
				return s.lose(now, &t, e, true)
			}
			s.job.warn(s.slot, message.Done.Warnings)
			checkpoint.stop() // or it would end the next chunk
			s.job.noteFirst(now, s.slot, message.Done.First)
			again := message.Done.Elsewhere != nil && s.makeRoom(now)
			return false, s.job.commit(now, s.slot, t, *message.Done, again)
		case message.Failed != nil:
			return s.lose(now, &t, cmp.Or(s.checkSources(message.Failed.Sources), message.Failed.Fault), true)
		}
	}
}

// checkSources takes the files that the worker reports. If they are not those of the job
// the job stops, and the worker's results are of no use: it is lost by the fault that is
// returned.
func (s *slotRun) checkSources(list []wire.Source) *fault.Error {
	e := s.job.noteSources(list)
	if e == nil || e.Kind != fault.Stopped {
		return e
	}
	s.job.halt(e)
	return fault.New(fault.Canceled, "%s", e.Message)
}

// makeRoom is for a record that did not fit the memory of a device that several
// workers share: one of them leaves for good, this one, before the record is tried
// again. It reports whether the device was shared.
func (s *slotRun) makeRoom(now context.Context) bool {
	key := s.slot.key()
	if !s.job.registry.Shared(key) {
		return false
	}
	capacity, lowered := s.job.registry.LowerForOOM(key)
	if lowered {
		s.job.emit(Notice{Text: fmt.Sprintf("%s: a record did not fit the memory beside another worker; from now on at most %d at a time", key, capacity)})
	}
	if s.job.registry.Yield(key) {
		s.left = true
		s.release(now)
		s.job.leave(s.slot)
		s.job.queue.leave(key)
	}
	return true
}

// lose decides what a lost worker means: for its task, its device and the job.
// told: it said itself what it is lost by. One that vanished may have been killed
// by a record.
func (s *slotRun) lose(now context.Context, t *task, e *fault.Error, told bool) (retired bool, err error) {
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
	if s.job.stopping.Load() { // nobody is left to try it again, and none is to blame yet
		if t != nil {
			s.job.queue.giveBack(*t)
		}
		return true, nil
	}
	retired = action == retire
	s.job.lost(s.slot, e, retired, probeAfter(s.probes))
	s.job.letGo(now, false) // it will not judge the kernel any more
	if t != nil {
		blameless := e.Kind == fault.Device || told && e.Kind == fault.Worker
		if err := s.job.retry(now, s.slot, *t, e, blameless); err != nil {
			return false, err
		}
	}
	if retired {
		return true, nil
	}
	select {
	case <-time.After(s.budget.backOff()):
	case <-now.Done():
	}
	return false, nil
}

// doubt decides about a worker that was lost by what only reads like a lost device, on a
// chunk of which it has computed nothing.
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
		s.budget = budget{} // the device is not to blame for what the chunk has cost
	}
	return fault.New(fault.Worker, "the kernel reports a lost device, which nothing confirms: %s", e.Message).WithDetail(e.Detail)
}

// drop makes sure that a worker is gone.
func (s *slotRun) drop() {
	if s.worker != nil {
		s.worker.kill()
		s.stuck = append(s.stuck, s.worker.stuck...)
		s.job.stuck.add(s.worker.stuck)
		s.job.setWorker(s.slot, nil)
		s.worker = nil
	}
	if s.next != nil {
		s.next.alone = true
		s.job.queue.giveBack(*s.next)
	}
	s.next, s.near = nil, false
}

// release ends the slot's worker, in good order unless the job ends at once.
func (s *slotRun) release(now context.Context) {
	if s.worker == nil {
		return
	}
	if now.Err() == nil && s.next == nil { // or it would work through that first
		s.worker.end()
	}
	s.drop()
}
