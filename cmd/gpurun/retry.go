package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/cluster/slurm"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/plugins/resolve"
)

const retryHelp = `Retry the failed records of a finished job and replace them in OUTPUT and in the
job's --errors file. The output is replaced atomically once all records are done. If
interrupted, run the same command to resume.

  gpurun retry out.jsonl
  gpurun retry out.jsonl -k ./fixed-kernel --timeout 30m
  gpurun retry out.jsonl --step clean.py --step fixed.py
  gpurun retry out/
  gpurun retry -f job.yaml

The kernel, its configuration and every setting that affects results (--nan, --keep,
--exec-mode, …) default to those of the job, and so does --python. The job's kernel runs in
the folder where the job was started, a kernel given with -k in the current one. To
replace one step of a chain, name all steps with --step. Results of an interrupted retry
are reused only if kernel and settings are the same.

The job's --gpus, --gpus-per-worker and --batch-size apply too, without GPUs that were
retired because records failed on them: --gpus names others, --gpus all all of them. Time
limits do not affect results: pass --timeout and the like again.

The input is not needed: failed records are read from the output or the --errors
file. The output is verified first and rejected if it has changed since the job wrote
it. Records that already had an "_error" in the input stay as they are.`

func newRetry() *cobra.Command {
	var j *jobCommand
	cmd := &cobra.Command{
		Use:   "retry OUTPUT",
		Short: "Retry the failed records of a finished job",
		Long:  retryHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := j.readSettings(cmd, args, "output")
			if err != nil {
				return err
			}
			if err := usageArgs(cobra.ExactArgs(1))(cmd, args); err != nil {
				return err
			}
			j.config.Output.Path = args[0]
			return sharedJob(args[0], j.execute(cmd, retryAllSteps))
		},
	}
	j = newJobCommand(cmd, isOfRetry)
	return cmd
}

// isOfRetry reports whether retry has a setting. Those that select records and name outputs are
// the job's.
func isOfRetry(s spec.Setting) bool {
	switch s.Group {
	case spec.GroupOutput, groupMachines:
		return false
	case spec.GroupInput:
		return s.Name == "max-record-bytes"
	}
	return !slices.Contains([]string{"fetch", "fresh", "accept-changes", "spool", "clean", "truncated"}, s.Name)
}

// retryAllSteps is orchestrator.Retry, but refuses a kernel that leaves out steps of the job's
// chain: the remaining steps would get records that they were not made for.
func retryAllSteps(ctx context.Context, config orchestrator.Config) (orchestrator.Report, error) {
	status, err := orchestrator.Inspect(config.Output.Path, config.Resume.WorkDir)
	if err != nil {
		return orchestrator.Retry(ctx, config) // which reports it
	}
	var flags []string
	steps := strings.Split(status.Report.Kernel, resolve.StepSeparator)
	for _, step := range steps {
		flags = append(flags, "--step "+slurm.Quote(step))
	}
	if given := config.Kernel.Name; given != "" && strings.Count(given, resolve.StepSeparator) < len(steps)-1 {
		return orchestrator.Report{}, fault.FlagsClash.New("the job ran %d steps, and %s would skip some of them; name all of its steps, with the new kernel in place of the one that it replaces: %s",
			len(steps), given, strings.Join(flags, " "))
	}
	return orchestrator.Retry(ctx, config)
}
