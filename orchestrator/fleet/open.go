package fleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
)

// open starts a worker and waits until its kernel is open or no work remains for it.
func (s *slotRun) open(ctx context.Context) *fault.Error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.fleet.queue.Open, cancel)()
	defer context.AfterFunc(s.stays, cancel)()
	s.staggerDone = s.fleet.stagger.begin(ctx)
	if ctx.Err() != nil {
		return fault.Interrupted.New("nothing left to do")
	}
	setup := s.fleet.setup(s.slot)
	key, started := process.Key(setup, s.slot.Pin), time.Now()
	s.fleet.monitor.hold(s.slot)
	if kept := s.fleet.Pool.Take(key, wire.Renew{Figures: setup.Figures, Spend: setup.Spend}); kept != nil {
		// Its kernel is open, and its first records were judged in the job that opened it.
		sources := kept.Sources
		kept.Sources = nil // ready adds them again
		s.begin(key, kept)
		s.fleet.ledger.hear(s.slot.Number, &judge.First{})
		return s.ready(sources, started)
	}
	var err error
	if setup.SocketDir, err = socketDir(s.fleet.Options, fmt.Sprintf("w%d-%d", s.slot.Number, s.fleet.numbers.Add(1))); err != nil {
		return fault.TempFolder.New("make temporary folder: %w", err)
	}
	if device := s.slot.Devices[0]; device.MPS != "" {
		setup.Alone = filepath.Join(filepath.Dir(setup.SocketDir), "alone-"+device.ID())
	}
	if setup.Proven == nil {
		if proof := s.fleet.ledger.proof(); proof != nil {
			located := s.fleet.Locate(*proof)
			setup.Proven = &located
		}
	}
	spec := process.Spec{
		Binary: s.fleet.Process.Binary, Label: s.slot.Name, Setup: setup, Env: process.Env(s.slot.Pin, s.slot.Threads),
		Log:       filepath.Join(s.fleet.Logs, fmt.Sprintf("worker-%d.log", s.slot.Number)),
		Templates: s.fleet.Templates, Device: strings.Join(s.slot.Pin, " "),
	}
	for _, device := range s.slot.Devices {
		if !s.fleet.NoAffinity {
			spec.CPUs = append(spec.CPUs, device.CPUs...)
		}
	}
	worker, err := process.Start(spec)
	if err != nil {
		return fault.As(fault.WorkerLost.Wrap(err))
	}
	s.begin(key, worker)
	if s.back.probes == 0 && s.member.retiredBy() != nil { // while the worker was starting
		worker.Abandon()
	}
	message, err := worker.Receive(ctx, nil)
	for err == nil && message.Start != nil {
		s.session.handle(ctx, message)
		message, err = worker.Receive(ctx, nil)
	}
	switch {
	case ctx.Err() != nil:
		return fault.Interrupted.New("nothing left to do")
	case err != nil:
		return worker.Lost(err)
	case message.Failed != nil:
		return cmp.Or(s.session.checkSources(message.Failed.Sources, false), message.Failed.Fault)
	}
	return s.ready(message.Ready.Sources, started)
}

// setup is what the next worker of a slot is told.
func (f *Fleet) setup(slot event.Slot) wire.Setup {
	setup := f.Process.Setup()
	setup.Device = slot.Device()
	f.tuned.apply(slot, &setup)
	if records := &setup.Records; slot.Added && records.AutoBatch {
		// It starts with what the search of an earlier worker has found: two searches on one device
		// would disturb each other.
		found := f.roster.work(slot.SharesDevice).BatchSize
		records.BatchSize, records.AutoBatch = cmp.Or(found, records.BatchSize), false
	}
	return setup
}

// socketDir creates a folder for the sockets of a worker, with this name unless the worker may
// outlive the job.
func socketDir(o Options, name string) (string, error) {
	if o.Pool != nil {
		return o.Pool.SocketDir(o.MakeDir)
	}
	dir := filepath.Join(o.Process.RunDir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// begin begins the session of a worker.
func (s *slotRun) begin(poolKey string, w *process.Worker) {
	s.session = &session{
		fleet: s.fleet, of: s, slot: s.slot, member: s.member, worker: w, poolKey: poolKey, hand: hand{lane: s.fleet.Lane},
	}
	s.member.started(w)
	s.fleet.Emit(event.WorkerStarted{Slot: s.slot.Number, Device: s.slot.Name, PID: w.PID})
}

// ready records that the slot's kernel is open, and which files it has loaded.
func (s *slotRun) ready(sources []wire.Source, started time.Time) *fault.Error {
	if e := s.session.checkSources(sources, false); e != nil {
		return e
	}
	s.opened = true
	s.staggerDone(true)
	s.back.probes = 0
	took := time.Since(started)
	s.member.ready(took)
	s.fleet.ledger.excuse(s.slot.Number, false)
	s.fleet.Emit(event.WorkerReady{Slot: s.slot.Number, Device: s.slot.Name, Took: took})
	return nil
}

// park keeps the slot's worker for the next job, if there may be one that needs it, and reports
// whether it did.
func (s *slotRun) park() bool {
	pool := s.fleet.Pool
	if pool == nil || s.session == nil || !s.opened || s.session.hasTasks() || s.left || !s.fleet.state.running() {
		return false
	}
	s.member.exited(0, nil)
	pool.Give(s.session.poolKey, s.session.worker)
	s.session = nil
	return true
}
