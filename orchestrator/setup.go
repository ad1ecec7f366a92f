package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/process"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// setup returns the settings that all workers of the job share.
func (p *prepared) setup() wire.Setup {
	c, plan := p.config, p.plan
	return wire.Setup{
		Proven: p.proven(), Programs: p.programs,
		Kernel: c.Kernel.Name, KernelConfig: c.Kernel.Config, ExecMode: c.Kernel.ExecMode, ExecID: c.Kernel.ExecID,
		Python: wire.Python{Interpreter: c.Kernel.Python, IOWorkers: c.Kernel.IOWorkers, NaN: c.Kernel.NaN},
		Dir:    c.Dir, PluginPath: c.Kernel.Path,
		OpenTimeout: c.Failures.OpenTimeout, Timeout: c.Failures.Timeout, Checkpoint: c.Resume.Checkpoint, LeastTimeout: c.Options.leastTimeout, Retries: max(0, c.Failures.Retries),
		Figures: p.spending.path, Asked: p.spending.asked(), Spend: wire.Spend{Requests: c.Resume.MaxRequests, Tokens: c.Resume.MaxTokens}, LogLevel: c.Display.LogLevel,
		Records: wire.Records{
			BatchSize: plan.BatchSize, BatchBytes: c.Batching.Bytes,
			MaxBytes: c.Input.MaxRecordBytes, Keep: c.Results.Kept, SourceField: c.Output.SourceField, Reprocess: c.Input.Reprocess,
			NoValidate: c.Input.NoValidate, GroupBy: plan.GroupBy, BatchCost: c.Batching.Cost,
			Store: c.Results.Store, ErrorsApart: c.Output.Errors != "", Batch: c.Results.Batch, Step: c.Kernel.Name,
			NaNFails: c.Kernel.NaN == NaNError, AutoBatch: c.Batching.Auto, GrowBatch: plan.GrowBatch,
			Columns: p.columns, Bytes: p.beside(), BytesRead: p.bytesRead(),
		},
		Fetch: c.Fetch, Layout: p.layout.Get(),
	}
}

// process is what all worker processes of the job have in common.
func (p *prepared) process() process.Options {
	return process.Options{Binary: p.config.WorkerBinary, Setup: p.setup, RunDir: p.runDir, Cores: p.config.cores()}
}

// proven returns records that a working kernel can compute because an earlier run did,
// or nil.
func (p *prepared) proven() *chunk.Chunk {
	file, s := p.config.inputs.Plain(), p.earlier.State.Proven
	if s == nil || file == "" {
		return nil
	}
	return &chunk.Chunk{
		File: files.Absolute(file), First: s.First, Records: s.Tally.Records,
		Offset: s.Start.Offset, Line: s.Start.Line, Length: s.Next.Offset - s.Start.Offset,
	}
}

// forWorker returns a chunk as a worker finds it, which may run in another folder.
func (p *prepared) forWorker(c chunk.Chunk) chunk.Chunk {
	if c.Source == "" && p.config.Output.SourceField != "" {
		c.Source = p.config.inputs.Plain()
	}
	c.File = files.Absolute(c.File)
	return c
}

// newJob returns a job that is ready to run.
func newJob(p *prepared, f *folder.Folder, output *commit.Output, started time.Time) *job {
	c := p.config
	j := &job{
		prepared: p, folder: f, started: started, before: tallyOf(p.earlier.State),
		sources: &sources{config: c, folder: f, programs: p.programs, data: p.kernel.Data, columns: p.columns, layout: p.layout, job: p.job},
	}
	j.root, j.abort = context.WithCancel(context.Background())
	j.committer = &committer{
		output: output, segments: make(chan chunk.Segment, 64), check: p.source.Check, giveUp: c.Results.Unread,
		disk: diskWarning{path: f.Path, first: c.Input.Offset, notice: c.notice, done: c.Results.Streamed()},
	}
	j.fleet = fleet.New(j.fleetOptions())
	j.committer.total = j.fleet.Total
	return j
}

// fleetOptions returns what the fleet must know of the job.
func (j *job) fleetOptions() fleet.Options {
	c, e := j.config, j.earlier
	o := fleet.Options{
		Source: j.source.Source, BatchSize: j.plan.BatchSize, Window: j.lane.window, Lane: j.lane.Lane,
		Slots: j.plan.Slots, Registry: j.staff.registry, Stagger: j.staggers(), Scaling: j.scaling(), Devices: c.Options.devices, OnMonitor: c.Control.watch,
		Process: j.process(), MakeDir: func() (string, error) { dir, _, err := folder.MakeTemp(func(string) {}); return dir, err },
		Parts: j.folder.Parts(), Logs: j.folder.Join("logs"), NoAffinity: c.Devices.NoAffinity,
		Locate: j.forWorker, Sources: j.sources.check, Layout: j.sources.fixLayout, LayoutKnown: j.layout.Known(),
		Retries: max(0, c.Failures.Retries), Checkpoint: c.Resume.Checkpoint, DrainTimeout: c.Resume.DrainTimeout,
		HandBack: c.Options.handBack, FirstProbe: c.Options.firstProbe, StallAfter: c.Options.stallAfter,
		Resumed: e.Resumes, Before: j.before, Answers: e.Answers,
		Case:   judge.Case{Exempt: c.Framed, Before: j.before.Counts, BatchSize: j.plan.BatchSize, Lacks: j.members.lacks, Streamed: c.Results.Streamed()},
		Paused: c.Control.paused, Emit: c.emit, Deliver: j.committer.deliver, Delivered: j.delivered, Halt: c.Failures.Halt.Reached,
		GiveUp: func(chunk chunk.Chunk, path string, why *fault.Error) (chunk.Segment, error) {
			return commit.GiveUp(chunk, c.Part(path), c.Input.MaxRecordBytes, why)
		},
		Usage: j.spending.file.All, Overspent: j.overspent, Abort: j.abort,
	}
	o.Devices.PinUUID = c.Devices.PinUUID
	if !e.Resumes { // otherwise an earlier run has checked its input
		o.Check = j.members.checkFirst
	}
	if !c.Devices.NoMonitor {
		o.Monitor = &gpu.MonitorOptions{Options: c.Options.devices, Config: c.Devices.Monitor, Profile: gpu.Profile(c.Devices.Profile), Clock: c.Options.clock}
	}
	if o.LayoutKnown == nil || c.Agreement != nil { // otherwise workers know a layout that the next job may not have
		o.Pool = c.Pool.kept()
	}
	if j.kernel.Interpreter != "" && !j.kernel.Info.Fresh && c.Kernel.Start != StartFresh {
		o.Templates = process.NewTemplates(j.runDir, c.Kernel.KeepWarm)
		if o.Pool != nil {
			o.Templates, _ = o.Pool.Templates(o.MakeDir, c.Kernel.KeepWarm) // without, interpreters start fresh
		}
	}
	if c.Batching.Auto {
		o.TunedFile = j.folder.BatchSizes()
	}
	return o
}

// scaling is how the number of workers may change.
func (j *job) scaling() (s scaler.Options) {
	staff := j.staff
	if !staff.auto() {
		return s
	}
	s = scaler.Options{
		Slots: j.plan.Slots, Reserve: staff.reserve, Resumed: staff.resumed, Usable: j.config.Devices.Monitor.UsableMemory, MinMemory: j.plan.Info.MinMemory,
		Every: j.config.Options.scaleEvery, Simulate: j.config.Options.scaleFigures, File: j.folder.Scaling(),
	}
	if staff.claim != nil {
		s.Memory, s.More = staff.claim.Memory, staff.claim.More
	}
	return s
}

// cacheVariables name the folders where frameworks keep models.
var cacheVariables = []string{"HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "XDG_CACHE_HOME"}

// staggers reports whether the kernels are opened one before the others.
func (p *prepared) staggers() bool {
	if p.config.Devices.Stagger != StaggerAuto {
		return p.config.Devices.Stagger == StaggerOn
	}
	places := append([]string{p.kernel.Interpreter}, p.kernel.Files...)
	for _, name := range cacheVariables {
		places = append(places, os.Getenv(name))
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, ".cache"))
	}
	return len(p.plan.Slots) > 1 && slices.ContainsFunc(places, isRemote)
}

// isRemote reports whether a file exists and is on a network file system.
func isRemote(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return runtime.GOOS == "linux" && !files.IsLocal(file)
}

// tallyOf counts the results that a state holds.
func tallyOf(state commit.State) (t chunk.Tally) {
	t.Add(state.Durable.Tally)
	for _, segment := range state.Segments {
		t.Add(segment.Tally)
	}
	return t
}
