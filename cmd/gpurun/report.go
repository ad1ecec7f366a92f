package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
)

const reportHelp = `Report what became of the job that wrote OUTPUT: finished, running, or interrupted
(the same gpurun run resumes it). It changes nothing.

  gpurun report out.jsonl
  gpurun report --json out.jsonl
  gpurun report --verify out.jsonl

--verify reads the output of a finished job and compares it with the checksums
that its writers noted; the exit status is 6 if they differ.`

func newReport() *cobra.Command {
	workDir, asJSON, verify := "", false, false
	cmd := &cobra.Command{
		Use:   "report OUTPUT",
		Short: "Tell what became of a job",
		Long:  reportHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			status, err := orchestrator.Inspect(args[0], workDir)
			if err != nil {
				return err
			}
			if verify && status.State == orchestrator.Done {
				if err := orchestrator.Verify(cmd.Context(), args[0], status.Report); err != nil {
					return err
				}
			}
			if asJSON {
				encoder := json.NewEncoder(os.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(status)
			}
			switch status.State {
			case orchestrator.Running:
				fmt.Printf("running: %s\n", status.Holder)
				progress.WriteCommitted(os.Stdout, status.Report)
			case orchestrator.Interrupted:
				fmt.Println(interrupted(status.Report))
				progress.WriteCommitted(os.Stdout, status.Report)
			default:
				fmt.Println("finished")
				progress.WriteReport(os.Stdout, status.Report)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&workDir, "work-dir", "", "the `FOLDER` that the job was given with --work-dir")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	cmd.Flags().BoolVar(&verify, "verify", false, "read the output of a finished job and compare its checksums")
	return cmd
}

// interrupted is what can be done about an interrupted job.
func interrupted(r orchestrator.Report) string {
	if r.Resume == orchestrator.ResumesAsAdvised {
		return "interrupted" // how its last run ended says what to do
	}
	return "interrupted: the same command resumes it"
}
