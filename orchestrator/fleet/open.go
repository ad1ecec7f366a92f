package fleet

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
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
)

// open starts a worker and waits until its kernel is open or no work remains for it.
func (s *slotRun) open(abortCtx context.Context) *fault.Error {
	ctx, cancel := s.fleet.queue.whileOpen(abortCtx)
	defer cancel()
	go func() {
		select {
		case <-s.dismissed:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.staggerDone = s.fleet.stagger.begin(ctx)
	if ctx.Err() != nil {
		return fault.Interrupted.New("nothing left to do")
	}
	setup := s.fleet.Process.Setup()
	setup.Device = s.slot.Device()
	s.fleet.tuned.apply(s.slot, &setup)
	if records := &setup.Records; s.fleet.scaler != nil && s.slot.Added && records.AutoBatch {
		// It starts with what the search of an earlier worker has found: two searches on one device
		// would disturb each other.
		found := s.fleet.roster.work(s.slot.SharesDevice).BatchSize
		records.BatchSize, records.AutoBatch = cmp.Or(found, records.BatchSize), false
	}
	s.poolKey, s.loaded = process.Key(setup, s.slot.Pin), nil
	started := time.Now()
	if kept := s.fleet.Pool.Take(s.poolKey, wire.Renew{Figures: setup.Figures, Spend: setup.Spend}); kept != nil {
		s.fleet.monitor.hold(s.slot)
		s.adopt(kept)
		loaded := s.loaded
		s.loaded = nil
		return s.ready(loaded, started)
	}
	var err error
	if setup.SocketDir, err = s.socketDir(); err != nil {
		return fault.TempFolder.New("make temporary folder: %w", err)
	}
	if setup.Proven == nil {
		if proof := s.fleet.ledger.proof(); proof != nil {
			located := s.fleet.Locate(*proof)
			setup.Proven = &located
		}
	}
	s.fleet.monitor.hold(s.slot)
	worker, err := process.Start(process.Spec{
		Binary: s.fleet.Process.Binary, Label: s.slot.Name, Setup: setup,
		Env: process.Env(s.slot.Pin, s.slot.Threads), CPUs: s.cpus(),
		Log: filepath.Join(s.fleet.Logs, fmt.Sprintf("worker-%d.log", s.slot.Number)),
	})
	if err != nil {
		return fault.As(fault.WorkerLost.Wrap(err))
	}
	s.fleet.roster.started(s.slot, worker)
	s.worker = worker
	if s.probes == 0 && s.fleet.roster.retiredBy(s.slot) != nil { // while the worker was starting
		worker.Abandon()
	}
	s.fleet.Emit(event.WorkerStarted{Slot: s.slot.Number, Device: s.slot.Name, PID: worker.PID})
	message, err := worker.Receive(ctx, nil)
	switch {
	case ctx.Err() != nil:
		return fault.Interrupted.New("nothing left to do")
	case err != nil:
		return worker.Lost(err)
	case message.Failed != nil:
		return cmp.Or(s.checkSources(message.Failed.Sources, false), message.Failed.Fault)
	}
	return s.ready(message.Ready.Sources, started)
}

// socketDir creates a folder for the sockets of the slot's next worker.
func (s *slotRun) socketDir() (string, error) {
	if s.fleet.Pool != nil {
		return s.fleet.Pool.SocketDir(s.fleet.MakeDir)
	}
	dir := filepath.Join(s.fleet.Process.RunDir, fmt.Sprintf("w%d-%d", s.slot.Number, s.starts))
	s.starts++
	return dir, os.MkdirAll(dir, 0o700)
}

// ready records that the slot's kernel is open, and which files it has loaded.
func (s *slotRun) ready(sources []wire.Source, started time.Time) *fault.Error {
	if e := s.checkSources(sources, false); e != nil {
		return e
	}
	s.opened = true
	s.staggerDone(true)
	s.probes = 0
	s.fleet.roster.ready(s.slot)
	s.fleet.ledger.excuse(s.slot.Number, false)
	took := time.Since(started)
	s.fleet.roster.openedIn(s.slot, took)
	s.fleet.Emit(event.WorkerReady{Slot: s.slot.Number, Device: s.slot.Name, Took: took})
	return nil
}

// cpus returns the CPUs near the slot's devices.
func (s *slotRun) cpus() []int {
	if s.fleet.NoAffinity {
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
		s.worker.Kill()
		s.stuck = append(s.stuck, s.worker.Stuck...)
		s.fleet.stuck.add(s.worker.Stuck)
		s.fleet.roster.exited(s.slot, s.worker.CPU())
		s.fleet.ledger.withdraw(s.slot.Number)
		s.fleet.suspects.progress(s.slot, judge.Outcomes{})
		s.worker = nil
	}
	s.giveBackAhead(true)
}

// release ends the slot's worker, gracefully unless the job is aborted.
func (s *slotRun) release(ctx context.Context) {
	if s.worker == nil {
		return
	}
	if ctx.Err() == nil && len(s.hand.ahead) == 0 { // or it would compute that first
		s.fleet.warn(s.slot, s.worker.End())
	}
	s.drop()
}

// adopt makes a kept worker the slot's. The kernel is open, and its first records were
// judged in the job that opened it.
func (s *slotRun) adopt(w *process.Kept) {
	s.worker, s.loaded = w.Worker, w.Sources
	s.fleet.roster.started(s.slot, s.worker)
	s.fleet.Emit(event.WorkerStarted{Slot: s.slot.Number, Device: s.slot.Name, PID: s.worker.PID})
	s.fleet.ledger.hear(s.slot.Number, &judge.First{})
}

// park keeps the slot's worker for the next job, if there may be one that needs it;
// otherwise it releases the worker.
func (s *slotRun) park() bool {
	pool := s.fleet.Pool
	if pool == nil || s.worker == nil || !s.opened || len(s.hand.ahead) > 0 || s.left ||
		!s.fleet.state.running() {
		return false
	}
	w := &process.Kept{Worker: s.worker, Sources: s.loaded}
	s.fleet.roster.exited(s.slot, 0)
	s.fleet.ledger.withdraw(s.slot.Number)
	s.worker = nil
	pool.Give(s.poolKey, w)
	return true
}
