package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/server"
)

// answerTime is how long a job may take to answer.
const answerTime = 10 * time.Second

// steering is a command that does something to one running job.
type steering struct {
	verb, short, long string
	// done is what is said afterwards; %s is the job.
	done string
	do   func(*server.Client, context.Context) (server.JobStatus, error)
}

var steerings = []steering{
	{
		verb: "pause", short: "Let a running job wait",
		long: "Let the workers of a running job stop at their next batch border and wait there.\nWhat is computed is committed; processes, models and GPU memory stay.",
		done: "%s pauses at the next batch border of each worker; gpurun resume goes on",
		do:   (*server.Client).Pause,
	},
	{
		verb: "resume", short: "Let a paused job go on",
		long: "Let a job that was paused with gpurun pause go on.",
		done: "%s goes on",
		do:   (*server.Client).Resume,
	},
	{
		verb: "cancel", short: "Stop a running job; the same command resumes it",
		long: "Stop a running job as SIGTERM would: at the next batch border of each worker, with\neverything committed. The same gpurun run resumes it, unless its input or output\nis a stream. A second cancel ends it at once.",
		done: "%s stops at the next batch border of each worker, and reports whether the same gpurun run resumes it",
		do:   (*server.Client).Cancel,
	},
}

func newSteering(s steering) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   s.verb + " JOB",
		Short: s.short,
		Long:  s.long + "\n\nJOB is an id as gpurun status shows it, the beginning of one, the job's name, or\nits output file.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			entry, err := server.Find(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
			defer cancel()
			status, err := s.do(server.NewClient(entry), ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(status)
			}
			fmt.Printf("job "+s.done+" (%s records done)\n", entry.ID, progress.Count(status.Status.Done.Records))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}
