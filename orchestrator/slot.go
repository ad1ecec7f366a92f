package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
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
}

func newSlotRun(j *job, slot Slot) *slotRun { return &slotRun{job: j, slot: slot} }

// run returns an error only for what must stop the whole job.
func (s *slotRun) run(now context.Context) error {
	defer func() { s.release(now) }()
	for {
		if e := s.job.retiredBy(s.slot); e != nil { // by another worker of its device
			s.job.lost(s.slot, e, true)
			return nil
		}
		if s.worker == nil {
			if e := s.open(now); e != nil {
				if retired, err := s.lose(now, nil, e); err != nil || retired {
					return err
				}
				continue
			}
		}
		t, ok, err := s.job.queue.take(now)
		if err != nil || !ok {
			return err
		}
		if retired, err := s.compute(now, t); err != nil || retired {
			return err
		}
	}
}

// open starts a worker and waits until its kernel is open, or until there is
// nothing left to do for it.
func (s *slotRun) open(now context.Context) *fault.Error {
	ctx, cancel := s.job.queue.whileOpen(now)
	defer cancel()
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
	s.job.emit(WorkerStarted{Slot: s.slot.Number, Device: s.slot.Name, PID: worker.process.Pid()})
	message, err := worker.receive(ctx)
	switch {
	case ctx.Err() != nil:
		return fault.New(fault.Canceled, "nothing left to do")
	case err != nil:
		return worker.lost(err)
	case message.Failed != nil:
		return message.Failed.Fault
	}
	s.opened = true
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

// compute gives the worker a task and follows it to its end.
func (s *slotRun) compute(now context.Context, t task) (retired bool, err error) {
	assign := wire.Assign{Chunk: t.chunk, Part: s.job.partPath(t)}
	if err := s.worker.conn.Send(wire.Message{Assign: &assign}); err != nil {
		return s.lose(now, &t, s.worker.lost(err))
	}
	// A stop that came before the chunk was told to the worker before it, too.
	if s.job.stopping.Load() {
		_ = s.worker.conn.Send(wire.Message{Stop: &wire.Stop{}})
	}
	s.job.emit(ChunkStarted{Slot: s.slot.Number, Device: s.slot.Name, First: t.chunk.First, Records: t.chunk.Records})
	for {
		message, err := s.worker.receive(now)
		switch {
		case now.Err() != nil:
			s.job.queue.giveBack(t)
			return true, nil
		case err != nil:
			return s.lose(now, &t, s.worker.lost(err))
		case message.Progress != nil:
			s.job.progress(s.slot, t, message.Progress.Counts)
		case message.Done != nil:
			s.job.commit(now, s.slot, t, *message.Done)
			return false, nil
		case message.Failed != nil:
			return s.lose(now, &t, message.Failed.Fault)
		}
	}
}

// lose decides what a lost worker means: for its task, its device and the job.
func (s *slotRun) lose(now context.Context, t *task, e *fault.Error) (retired bool, err error) {
	s.drop()
	if t != nil {
		s.job.forget(s.slot)
	}
	action := decide(e.Kind, s.opened, &s.budget, time.Now())
	if action == giveUpJob || action == leave {
		if t != nil {
			s.job.queue.giveBack(*t)
		}
		if action == leave {
			return true, nil
		}
		return true, e
	}
	retired = action == retire
	s.job.lost(s.slot, e, retired)
	if t != nil {
		if err := s.job.retry(now, *t, e); err != nil {
			return true, err
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

// drop makes sure that a worker is gone.
func (s *slotRun) drop() {
	if s.worker != nil {
		s.worker.kill()
		s.job.setWorker(s.slot, nil)
		s.worker = nil
	}
}

// release ends the slot's worker, in good order unless the job ends at once.
func (s *slotRun) release(now context.Context) {
	if s.worker == nil {
		return
	}
	if now.Err() == nil {
		s.worker.end()
	}
	s.drop()
}

func (j *job) setWorker(slot Slot, w *workerProcess) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.workers[slot.Number] = w
	report := &j.report.Workers[slot.Number]
	if w == nil && !report.ready.IsZero() {
		report.alive += time.Since(report.ready)
		report.ready = time.Time{}
	}
}

func (j *job) ready(slot Slot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.opened = true
	j.report.Workers[slot.Number].ready = time.Now()
}

// retiredBy is how the slot's device was lost, nil if it was not.
func (j *job) retiredBy(slot Slot) *fault.Error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, device := range slot.Devices {
		if e := j.retired[device.String()]; e != nil {
			return e
		}
	}
	return nil
}

// lost books a lost worker.
func (j *job) lost(slot Slot, e *fault.Error, retired bool) {
	j.mu.Lock()
	j.last = e
	report := &j.report.Workers[slot.Number]
	report.Lost++
	report.Retired = retired
	if e.Kind == fault.Device {
		for _, device := range slot.Devices {
			j.retired[device.String()] = e
		}
	}
	j.mu.Unlock()
	j.emit(WorkerLost{Slot: slot.Number, Device: slot.Name, Fault: e, Retired: retired})
}

// progress books how far a chunk is.
func (j *job) progress(slot Slot, t task, counts chunk.Counts) {
	j.mu.Lock()
	j.live[slot.Number] = counts
	done := j.done()
	j.mu.Unlock()
	j.emit(Progress{
		Slot: slot.Number, Device: slot.Name, Chunk: counts, Records: t.chunk.Records,
		Job: done, Total: j.total(),
	})
}

// forget takes back what was told of a chunk that is lost.
func (j *job) forget(slot Slot) {
	j.mu.Lock()
	j.live[slot.Number] = chunk.Counts{}
	j.mu.Unlock()
}

// commit takes a finished segment; what the worker left of the chunk goes back.
func (j *job) commit(now context.Context, slot Slot, t task, done wire.Done) {
	counts := done.Segment.Counts
	j.mu.Lock()
	j.live[slot.Number] = chunk.Counts{}
	j.report.addCounts(counts)
	j.report.addStats(slot.Number, counts, done.Stats)
	all := j.done()
	j.mu.Unlock()
	j.deliver(now, done.Segment)
	j.emit(ChunkDone{
		Slot: slot.Number, Device: slot.Name, First: t.chunk.First, Counts: counts,
		Job: all, Total: j.total(),
	})
	if done.Rest != nil {
		j.queue.giveBack(task{chunk: *done.Rest})
		return
	}
	j.source.Release(t.chunk)
	j.queue.finish()
}

// deliver hands a segment to the committer, who may be gone if the job stops.
func (j *job) deliver(now context.Context, s chunk.Segment) {
	if s.Counts.Records == 0 {
		return
	}
	select {
	case j.segments <- s:
	case <-now.Done():
	}
}

// retry gives a task whose worker was lost to somebody else, or gives it up.
func (j *job) retry(now context.Context, t task, e *fault.Error) error {
	if e.Kind != fault.Device { // the device's fault costs the chunk nothing
		t.attempts++
	}
	t.last = e
	if t.attempts <= max(0, j.config.Retries) {
		j.queue.giveBack(t)
		return nil
	}
	given := fault.New(e.Kind, "given up after %d attempts: %s", t.attempts, e.Message).WithDetail(e.Detail)
	segment, err := chunk.GiveUp(t.chunk, chunk.PartOptions{
		Path: j.partPath(t), First: t.chunk.First,
		ErrorsApart: j.config.Errors != "", Step: j.config.Kernel,
	}, j.config.MaxRecordBytes, given)
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.report.addCounts(segment.Counts)
	j.report.addFailure(FailureReport{
		Kind: e.Kind.String(), Count: segment.Counts.Failed,
		Example: given.Message, Line: t.chunk.Line, Detail: given.Detail,
	})
	j.mu.Unlock()
	j.emit(ChunkGivenUp{First: t.chunk.First, Records: t.chunk.Records, Fault: given})
	j.deliver(now, segment)
	j.source.Release(t.chunk)
	j.queue.finish()
	return nil
}
