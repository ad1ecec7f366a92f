package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// Run runs a job, or resumes it if an earlier run of the same job was interrupted. It
// returns when every record is in the output or when the job must stop. The error then
// says why, as a *Fault that errors.As finds, and the report says how far the job came.
// Failed records are not an error: Report.Failed counts them.
//
// Canceling ctx stops the job at each worker's next batch boundary. errors.Is then
// finds ctx.Err() and context.Cause(ctx) in the error.
func Run(ctx context.Context, config Config) (Report, error) {
	report, err := runJob(ctx, config)
	for runsAgain(err) && config.repaired == nil && ctx.Err() == nil {
		config.checkAll = true
		_ = errors.As(err, &config.repaired)
		report, err = runJob(ctx, config)
	}
	return report, byContext(ctx, err)
}

// runsAgain reports whether a job found out while it ran that some of what earlier runs have left
// cannot be used. It begins once more, without that.
func runsAgain(err error) bool {
	return errors.Is(err, errOutputDamaged) || errors.As(err, new(*input.Repaired))
}

// runJob is one attempt of Run: check the settings, find what earlier runs have left, plan,
// open the files, work.
func runJob(ctx context.Context, config Config) (Report, error) {
	started := time.Now()
	config, err := config.checked()
	if err != nil {
		return Report{}, err
	}
	f, err := openFolder(ctx, config) // and lock it
	if err != nil {
		return Report{}, err
	}
	begun := false // the folder is to be kept
	defer func() { f.close(begun) }()
	before, err := findEarlier(ctx, config, f)
	if err != nil {
		return Report{}, startsOver(config, err)
	}
	if before != nil {
		begun = true
		if bytes := before.manifest.Cut.PartBytes; bytes > 0 {
			config.Output.PartBytes = bytes // cut the rest of the output as before
		}
		if before.state.Complete {
			report, err := finishEarlier(config, f, before)
			return report, startsOver(config, err)
		}
		defer before.close()
	} else if report, done := findFinished(ctx, config, f); done {
		begun = true
		return report, nil
	}
	if err := checkOutputs(config); err != nil {
		return Report{}, f.withDifference(ctx, config, err)
	}
	p, err := prepare(ctx, config, before, false, f.lock.note)
	if err != nil {
		return Report{}, err
	}
	defer p.close()
	if before == nil {
		if err := f.begin(); err != nil {
			return Report{}, err
		}
		begun = resumable(config)
	}
	if err := p.openSource(ctx, f); err != nil {
		return Report{}, err
	}
	output, journal, err := openOutput(ctx, p, f)
	if err != nil {
		return Report{}, err
	}
	if journal != nil {
		defer journal.Close()
	}
	begun = true
	if err := p.openFigures(f); err != nil {
		return Report{}, err
	}
	return newJob(p, f, output, started).run(ctx)
}

// startsOver adds to a fault after which the job can only start over what else that takes: an
// output that has its name already must be replaced.
func startsOver(c Config, err error) error {
	if e := fault.As(err); e != nil && e.Code == fault.Damaged {
		if named := fault.As(checkOutputs(c)); named != nil && named.Code == fault.Exists {
			return e.WithCode(fault.Damaged, "force")
		}
	}
	return err
}

// checked returns the settings with their defaults, after checking what can be checked
// before anything is touched.
func (c Config) checked() (Config, error) {
	if c.Output.Path == "" {
		return c, fault.New(fault.Usage, "no output: name a file, or - for standard output").WithCode(fault.NoOutput, "")
	}
	c, err := c.withDefaults()
	if err != nil {
		return c, err
	}
	if err := checkOpenFiles(1); err != nil {
		return c, err
	}
	return c, checkOutputFolders(c)
}

// openSource opens what prepare has left closed: an input that is decoded into the job
// folder, and the log of an input's checksums.
func (p *prepared) openSource(ctx context.Context, f *folder) error {
	if err := p.sampleInput(ctx); err != nil {
		return err
	}
	if p.source == nil {
		if err := p.openSequence(f); err != nil {
			return err
		}
	}
	return p.openSums(f)
}
