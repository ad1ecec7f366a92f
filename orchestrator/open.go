package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// open starts a worker and waits until its kernel is open or no work remains for it.
func (s *slotRun) open(abortCtx context.Context) *fault.Error {
	ctx, cancel := s.job.queue.whileOpen(abortCtx)
	defer cancel()
	go func() {
		select {
		case <-s.dismissed:
			cancel()
		case <-ctx.Done():
		}
	}()
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
	s.job.scaler.tuned(s.slot, &setup)
	if setup.Proven == nil {
		if proof := s.job.ledger.proof(); proof != nil {
			located := s.job.forWorker(*proof)
			setup.Proven = &located
		}
	}
	s.job.monitor.hold(s.slot)
	started := time.Now()
	worker, err := startWorker(workerOptions{
		binary: s.job.config.WorkerBinary, label: s.slot.Name, setup: setup,
		env: workerEnv(s.slot.Pin, s.slot.Threads), cpus: s.cpus(),
		log: s.job.folder.join("logs", fmt.Sprintf("worker-%d.log", s.slot.Number)),
	})
	if err != nil {
		return fault.As(fault.Wrap(fault.Worker, err))
	}
	s.job.fleet.started(s.slot, worker)
	s.worker = worker
	if s.probes == 0 && s.job.fleet.retiredBy(s.slot) != nil { // while the worker was starting
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
	s.job.fleet.ready(s.slot)
	s.job.ledger.excuse(s.slot.Number, false)
	took := time.Since(started)
	s.job.fleet.openedIn(s.slot, took)
	s.job.emit(WorkerReady{Slot: s.slot.Number, Device: s.slot.Name, Took: took})
	return nil
}

// cpus returns the CPUs near the slot's devices.
func (s *slotRun) cpus() []int {
	if s.job.config.Devices.NoAffinity {
		return nil
	}
	var cpus []int
	for _, device := range s.slot.Devices {
		cpus = append(cpus, device.CPUs...)
	}
	return cpus
}

// drop makes sure that the worker has exited.
func (s *slotRun) drop() {
	if s.worker != nil {
		s.worker.kill()
		s.stuck = append(s.stuck, s.worker.stuck...)
		s.job.stuck.add(s.worker.stuck)
		s.job.fleet.exited(s.slot, s.worker.guard.Exit().CPU)
		s.job.ledger.withdraw(s.slot.Number)
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
