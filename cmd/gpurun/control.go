package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/progress"
)

// answerTime is how long a job may take to respond.
const answerTime = 10 * time.Second

// steering is a command that controls one running job.
type steering struct {
	verb, short, long string
	// done is printed on success; %s is the job.
	done string
}

var steerings = []steering{
	{
		verb: "pause", short: "Pause a running job",
		long: "Pause a running job. Each worker finishes its current batch, commits its results\nand waits. Processes, loaded models and GPU memory stay allocated.\nRun gpurun resume to continue.",
		done: "%s pauses after the current batch of each worker; run gpurun resume to continue",
	},
	{
		verb: "resume", short: "Resume a paused job",
		long: "Resume a job that was paused with gpurun pause.",
		done: "%s resumed",
	},
	{
		verb: "cancel", short: "Stop a running job so that it can be resumed",
		long: "Stop a running job as SIGTERM does: each worker finishes its current batch and\ncommits its results. Run the same gpurun run command to resume the job, unless its\ninput or output is a stream. A second cancel stops it immediately.",
		done: "%s stops after the current batch of each worker and reports whether it can be resumed",
	},
}

func newSteering(s steering) *cobra.Command {
	var o struct{ JSON bool }
	return newCommand(&cobra.Command{
		Use:   s.verb + " JOB",
		Short: s.short,
		Long: s.long + "\n\n  gpurun " + s.verb + " out.jsonl\n  gpurun " + s.verb + " nightly\n\n" +
			"JOB is a job id or a prefix of one (see gpurun status), the job's name (--name), or\nits output file.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			entry, err := jobs.Find(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
			defer cancel()
			state, err := jobs.NewClient(entry).Steer(ctx, s.verb)
			if err != nil {
				return err
			}
			return result{state, func(w io.Writer) {
				fmt.Fprintf(w, "job "+s.done+" (%s records done)\n", entry.ID, progress.Count(state.Done.Records))
			}}.show(o.JSON)
		},
	}, &o, jsonSetting)
}
