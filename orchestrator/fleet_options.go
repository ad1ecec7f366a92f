package orchestrator

import (
	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/process"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// fleetOptions returns what the fleet must know of the job.
func (j *job) fleetOptions() fleet.Options {
	c := j.config
	o := fleet.Options{
		Source: j.source.Source, Check: j.checkFirst, BatchSize: j.plan.BatchSize, Window: j.plan.window(), Lane: fleet.BatchLane(),
		Slots: j.plan.Slots, Registry: j.staff.registry, Stagger: j.staggers(), Scaling: j.scaling(), Devices: c.Options.devices, OnMonitor: c.Control.watch,
		Process: j.process(), MakeDir: func() (string, error) { dir, _, err := makeRunDir(func(string) {}); return dir, err },
		Parts: j.folder.join(commit.PartsDir), Logs: j.folder.join("logs"), NoAffinity: c.Devices.NoAffinity,
		Locate: j.forWorker, Sources: j.sources.check, Layout: j.sources.fixLayout,
		Retries: max(0, c.Failures.Retries), Checkpoint: c.Resume.Checkpoint, DrainTimeout: c.Resume.DrainTimeout,
		HandBack: c.Options.handBack, FirstProbe: c.Options.firstProbe, StallAfter: c.Options.stallAfter,
		Resumed: j.earlier.resumes, Before: j.before, Answers: j.earlier.answers,
		Case:   judge.Case{Exempt: c.Framed, Before: j.before.Counts, BatchSize: j.plan.BatchSize, Lacks: j.lacks, Streamed: c.Results.Streamed()},
		Paused: c.Control.paused, Emit: j.emit, Deliver: j.committer.deliver, Delivered: j.delivered, GiveUp: j.giveUp,
		Usage: j.spending.file.All, Overspent: j.overspent, Abort: j.abort,
	}
	o.Devices.PinUUID = c.Devices.PinUUID
	if n := j.plan.Info.Concurrency; n > 0 {
		o.Lane = fleet.RecordLane(n, c.Failures.Retries)
	}
	if !c.Devices.NoMonitor {
		o.Monitor = &gpu.MonitorOptions{Options: c.Options.devices, Config: c.Devices.Monitor, Profile: gpu.Profile(c.Devices.Profile), Clock: c.Options.clock}
	}
	if j.spec == nil { // otherwise workers know the layout of the job's columns
		o.Pool = c.Pool.kept()
	}
	if j.layout != nil {
		o.LayoutKnown = j.layout.Known()
	}
	if c.Failures.Halt != (Halt{}) {
		o.Halt = c.Failures.Halt.Reached
	}
	if c.Batching.Auto {
		o.TunedFile = j.folder.join(fleet.TunedFile)
	}
	return o
}

// process is what all worker processes of the job have in common.
func (p *prepared) process() process.Options {
	return process.Options{Binary: p.config.WorkerBinary, Setup: p.setup, RunDir: p.runDir, Cores: p.config.cores()}
}

// scaling is how the number of workers may change; nil if it is fixed.
func (j *job) scaling() *scaler.Options {
	if !j.staff.auto() {
		return nil
	}
	s := &scaler.Options{
		Reserve: j.staff.reserve, Resumed: j.staff.resumed, Usable: j.config.Devices.Monitor.UsableMemory, MinMemory: j.plan.Info.MinMemory,
		Speed: j.config.Options.scaleSpeed, Simulate: j.config.Options.scaleFigures, File: j.folder.join(scaler.File),
	}
	if claim := j.staff.claim; claim != nil {
		s.Memory, s.More = claim.Memory, claim.More
	}
	return s
}

// giveUp writes a chunk with every record marked as failed.
func (j *job) giveUp(c chunk.Chunk, path string, why *fault.Error) (chunk.Segment, error) {
	return commit.GiveUp(c, j.config.Part(path), j.config.Input.MaxRecordBytes, why)
}
