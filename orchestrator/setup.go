package orchestrator

import (
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// unusable turns the failure to describe a kernel into a fault that stops the job.
func unusable(err error) error {
	switch fault.KindOf(err) {
	case fault.Crash, fault.Timeout, fault.Batch, fault.Record, fault.OOM:
		fault.As(err).Kind = fault.Incompatible
	case fault.Worker: // a system limit, or the worker was killed: not the kernel's fault
		fault.As(err).Kind = fault.Stopped
	}
	return err
}

// setup returns the settings that all workers of the job share.
func (p *prepared) setup() wire.Setup {
	return wire.Setup{
		Proven: p.proven(), Programs: p.programs,
		Kernel: p.config.Kernel.Name, KernelConfig: p.config.Kernel.Config, ExecMode: p.config.Kernel.ExecMode, ExecID: p.config.Kernel.ExecID,
		Python: wire.Python{Interpreter: p.config.Kernel.Python, IOWorkers: p.config.Kernel.IOWorkers, NaN: p.config.Kernel.NaN},
		Dir:    p.config.Dir, PluginPath: p.config.PluginPath,
		OpenTimeout: p.config.Failures.OpenTimeout, Timeout: p.config.Failures.Timeout, Checkpoint: p.config.Resume.Checkpoint, LeastTimeout: p.config.Options.leastTimeout, Retries: max(0, p.config.Failures.Retries),
		Figures: p.spending.path, Asked: p.spending.asked(), Spend: wire.Spend{Requests: p.config.Resume.MaxRequests, Tokens: p.config.Resume.MaxTokens}, LogLevel: p.config.Display.LogLevel,
		Records: wire.Records{
			BatchSize: p.plan.BatchSize, BatchBytes: p.config.Batching.Bytes,
			MaxBytes: p.config.Input.MaxRecordBytes, Keep: p.config.Results.Kept, SourceField: p.config.Output.SourceField, Reprocess: p.config.Input.Reprocess,
			NoValidate: p.config.Input.NoValidate, GroupBy: p.plan.GroupBy, BatchCost: p.config.Batching.Cost,
			Store: p.config.Results.Store, ErrorsApart: p.config.Output.Errors != "", Batch: p.config.Results.Batch, Step: p.config.Kernel.Name,
			NaNFails: p.config.Kernel.NaN == NaNError, AutoBatch: p.config.Batching.Auto, GrowBatch: p.plan.GrowBatch,
			Columns: p.spec,
		},
		Fetch: p.config.fetchSetup(), Layout: p.layout.Get(),
	}
}
