package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
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
	setup := s.job.setup("")
	setup.Device = s.slot.device()
	s.job.tuned.apply(s.slot, &setup)
	s.job.scaler.tuned(s.slot, &setup)
	s.poolKey, s.loaded = poolKey(setup, s.slot), nil
	started := time.Now()
	if kept := s.job.config.Pool.take(s.poolKey, wire.Renew{Figures: setup.Figures, Spend: setup.Spend}); kept != nil {
		s.job.monitor.hold(s.slot)
		s.adopt(kept)
		loaded := s.loaded
		s.loaded = nil
		return s.ready(loaded, started)
	}
	var err error
	if setup.SocketDir, err = s.socketDir(); err != nil {
		return fault.New(fault.Storage, "make temporary folder: %w", err)
	}
	if setup.Proven == nil {
		if proof := s.job.ledger.proof(); proof != nil {
			located := s.job.forWorker(*proof)
			setup.Proven = &located
		}
	}
	s.job.monitor.hold(s.slot)
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
	message, err := worker.receive(ctx, nil)
	switch {
	case ctx.Err() != nil:
		return fault.New(fault.Canceled, "nothing left to do")
	case err != nil:
		return worker.lost(err)
	case message.Failed != nil:
		return cmp.Or(s.checkSources(message.Failed.Sources), message.Failed.Fault)
	}
	return s.ready(message.Ready.Sources, started)
}

// socketDir creates a folder for the sockets of the slot's next worker.
func (s *slotRun) socketDir() (string, error) {
	if s.job.config.Pool != nil {
		return s.job.config.Pool.socketDir()
	}
	dir := filepath.Join(s.job.runDir, fmt.Sprintf("w%d-%d", s.slot.Number, s.starts))
	s.starts++
	return dir, os.MkdirAll(dir, 0o700)
}

// ready records that the slot's kernel is open, and which files it has loaded.
func (s *slotRun) ready(sources []wire.Source, started time.Time) *fault.Error {
	if e := cmp.Or(s.job.sources.noteWritten(false), s.checkSources(sources)); e != nil {
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
		s.job.suspects.progress(s.slot, judge.Outcomes{})
		s.worker = nil
	}
	s.giveBackAhead(true)
}

// release ends the slot's worker, gracefully unless the job is aborted.
func (s *slotRun) release(ctx context.Context) {
	if s.worker == nil {
		return
	}
	if ctx.Err() == nil && len(s.ahead) == 0 { // or it would compute that first
		s.job.warn(s.slot, s.worker.end())
	}
	s.drop()
}
