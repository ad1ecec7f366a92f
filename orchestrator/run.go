package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Run runs a job, or resumes it if an earlier run of the same job was interrupted. It
// returns when every record is in the output or when the job must stop. The error then
// says why, as a *Fault that errors.As finds, and the report says how far the job came.
// Failed records are not an error: Report.Failed counts them.
//
// Canceling ctx stops the job at each worker's next batch boundary. errors.Is then
// finds ctx.Err() and context.Cause(ctx) in the error.
func Run(ctx context.Context, config Config) (Report, error) {
	s, err := spec.Resolve(config.settings())
	if err != nil {
		return Report{}, err
	}
	return run(ctx, order{Spec: s, Program: config.Program})
}

func run(ctx context.Context, o order) (Report, error) {
	o.streams = new(source.Streams)
	report, err := runJob(ctx, o)
	for runsAgain(err) && o.repaired == nil && ctx.Err() == nil {
		o.checkAll = true
		_ = errors.As(err, &o.repaired)
		report, err = runJob(ctx, o)
	}
	return report, byContext(ctx, err)
}

// runsAgain reports whether a job found out while it ran that some of what earlier runs have left
// cannot be used. It begins once more, without that.
func runsAgain(err error) bool {
	return errors.Is(err, folder.ErrOutputDamaged) || errors.As(err, new(*input.Repaired))
}

// runJob is one attempt of Run: find the input and what earlier runs have left, plan,
// open the files, work.
func runJob(ctx context.Context, todo order) (Report, error) {
	started := time.Now()
	if todo.Output.Path == "" {
		return Report{}, fault.NoOutput.New("no output: name a file, or - for standard output").Set("out.jsonl")
	}
	o, err := todo.open()
	if err != nil {
		return Report{}, err
	}
	if err := cmp.Or(checkOpenFiles(1), o.CheckFolders()); err != nil {
		return Report{}, err
	}
	if err := o.awaitStreams(ctx, todo.Spec); err != nil {
		return Report{}, err
	}
	f, err := folder.Open(ctx, o.Spec, o.notice) // and lock it
	if err != nil {
		return Report{}, err
	}
	begun := false // the folder is to be kept
	defer func() { f.Close(begun) }()
	before, err := f.Earlier(ctx, folder.Resume{
		Spec: o.Spec, Inputs: o.inputs, Repaired: o.repaired, CheckAll: o.checkAll, CheckWait: o.Options.checkWait,
	})
	if err != nil {
		return Report{}, startsOver(o, err)
	}
	defer before.Close()
	begun = before.Resumes
	if report, done, err := finished(ctx, o, f, before); done {
		begun = true
		return report, startsOver(o, err)
	}
	if err := o.CheckOutputs(); err != nil {
		return Report{}, withDifference(ctx, f, o, err)
	}
	p, err := prepare(ctx, o, before, f.UseTemp)
	if err != nil {
		return Report{}, err
	}
	defer p.close()
	if err := before.Begin(o.Spec, f); err != nil {
		return Report{}, err
	}
	begun = before.Journal != nil
	if err := p.openSource(ctx, f); err != nil {
		return Report{}, err
	}
	output, err := p.openOutput(ctx, f)
	if err != nil {
		return Report{}, err
	}
	begun = true
	if err := p.spending.open(f.Figures(), p.lane.counts); err != nil {
		return Report{}, err
	}
	return newJob(p, f, output, started).run(ctx)
}

// startsOver adds to a fault after which the job can only start over what else that takes: an
// output that has its name already must be replaced.
func startsOver(o *order, err error) error {
	if e := fault.As(err); e != nil && (e.Code == fault.JobDamaged || e.Code == fault.ExtraLines) {
		if named := fault.As(o.CheckOutputs()); named != nil && named.Code == fault.OutputExists {
			return e.Set("force")
		}
	}
	return err
}
