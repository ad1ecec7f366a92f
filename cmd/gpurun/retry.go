package main

import (
	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/orchestrator"
)

const retryHelp = `Run the failed records of a finished job again, and put the results in their
place: in OUTPUT, and in the file that was given with --errors. The output
changes at once, when all of it is done; interrupted, the same command resumes.

  gpurun retry out.jsonl
  gpurun retry out.jsonl -k ./fixed-kernel --timeout 30m
  gpurun retry out/

The kernel, its configuration and every setting that shapes results (--nan, --keep,
--exec-mode and so on) are those of the job unless others are given. The job's
kernel runs where the job was started, with the same Python; a kernel named with
-k runs here. Results of an earlier retry that was stopped are used only if it had
the same kernel and settings.

The failed records are taken from where they are kept: the input may be gone, or
have been a stream. The whole output is read first: one that was changed since the
job wrote it is refused. Records that came in with an "_error" stay as they are.`

func newRetry() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "retry OUTPUT",
		Short: "Run only the failed records of a finished job again",
		Long:  retryHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.config.Output = args[0]
			return f.execute(cmd, orchestrator.Retry)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.registerKernel(flags)
	f.registerDevices(flags)
	f.registerBatches(flags)
	f.registerRunning(flags)
	flags.StringVar(&f.config.WorkDir, "work-dir", "", "the `FOLDER` that the job was given with --work-dir")
	return cmd
}
