package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
)

const reportHelp = `Show the state of the job that writes OUTPUT: finished, running or interrupted. Run
the same gpurun run command to resume an interrupted job.

  gpurun report out.jsonl
  gpurun report --json out.jsonl
  gpurun report --html report.html out.jsonl
  gpurun report --verify out.jsonl

--html writes one file that a browser shows without a server or a network: charts of
every device, the input, failures with tracebacks, and a timeline of all runs.

--verify reads the output of a finished job and compares it with the checksums
recorded when it was written. The exit status is 6 if they differ.`

func newReport() *cobra.Command {
	workDir, html, asJSON, verify := "", "", false, false
	cmd := &cobra.Command{
		Use:   "report OUTPUT",
		Short: "Show the state and report of a job",
		Long:  reportHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			status, err := orchestrator.Inspect(args[0], workDir)
			if err != nil {
				return sharedJob(args[0], err)
			}
			if verify && status.State == orchestrator.Done {
				if err := orchestrator.Verify(cmd.Context(), args[0], status.Report); err != nil {
					return err
				}
			}
			if html != "" {
				if err := writeHTML(html, status); err != nil {
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
				progress.WriteCommitted(os.Stdout, status.Report, reportHints{})
			case orchestrator.Interrupted:
				fmt.Println(interrupted(status.Report))
				progress.WriteCommitted(os.Stdout, status.Report, reportHints{})
			default:
				fmt.Println("finished" + retriedBy(status))
				if verify {
					fmt.Println(verified(status.Report))
				}
				progress.WriteReport(os.Stdout, status.Report, reportHints{})
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&workDir, "work-dir", "", "`FOLDER` that the job was started with (--work-dir)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&html, "html", "", "also write the report with charts to this `FILE`, for a browser")
	cmd.Flags().BoolVar(&verify, "verify", false, "verify the checksums of a finished job's output")
	return cmd
}

// retriedBy says which process retries the failed records of a finished job.
func retriedBy(s orchestrator.Status) string {
	if s.Holder == "" {
		return ""
	}
	return "; being retried by " + s.Holder
}

// verified says what was compared with the checksums, and found equal.
func verified(r orchestrator.Report) string {
	bytes, files := r.OutputBytes, 1+len(r.Arrays)
	for _, array := range r.Arrays {
		bytes += array.Bytes
	}
	if files > 1 {
		return fmt.Sprintf("verified: %s bytes in %d files match their checksums", progress.Count(bytes), files)
	}
	return fmt.Sprintf("verified: %s bytes match their checksum", progress.Count(bytes))
}

// interrupted describes an interrupted job and how to resume it.
func interrupted(r orchestrator.Report) string {
	if r.Resume == orchestrator.ResumesAsAdvised {
		return "interrupted" // the reason its last run ended says what to do
	}
	return "interrupted: run the same command to resume"
}
