package main

import (
	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/orchestrator"
)

const retryHelp = `Run the failed records of a finished job again, and put the results in their
place: in OUTPUT, and in the file that was given with --errors. The output
changes at once, when all of it is done; interrupted, the same command goes on.

  gpurun retry out.jsonl
  gpurun retry out.jsonl -k ./fixed-kernel --timeout 30m
  gpurun retry out/

The kernel and its configuration are those of the job unless others are given.
The failed records are taken from where they are kept: the input may be gone, or
have been a stream. An output that was changed since the job is refused; of a
folder of parts every part is read to see that. Records that came in with an
"_error" stay as they are.`

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
