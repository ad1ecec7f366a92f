package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
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
	var o struct {
		WorkDir, HTML string
		JSON, Verify  bool
	}
	return newCommand(&cobra.Command{
		Use:   "report OUTPUT",
		Short: "Show the state and report of a job",
		Long:  reportHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := orchestrator.Inspect(args[0], o.WorkDir)
			if err != nil {
				return sharedJob(args[0], err)
			}
			verify := o.Verify && status.State == orchestrator.Done
			if verify {
				if err := orchestrator.Verify(cmd.Context(), args[0], status.Report); err != nil {
					return err
				}
			}
			if o.HTML != "" {
				if err := writeHTML(o.HTML, status); err != nil {
					return err
				}
			}
			return result{status, func(w io.Writer) { writeStatus(w, status, verify) }}.show(o.JSON)
		},
	}, &o,
		spec.Setting{Name: "work-dir", Field: "WorkDir", Value: "FOLDER", Help: "FOLDER that the job was started with (--work-dir)"}, jsonSetting,
		spec.Setting{Name: "html", Field: "HTML", Value: "FILE", Help: "also write the report with charts to this FILE, for a browser"},
		spec.Setting{Name: "verify", Kind: spec.Bool, Field: "Verify", Help: "verify the checksums of a finished job's output"})
}

// writeStatus writes the state of a job and its report.
func writeStatus(w io.Writer, s orchestrator.Status, isVerified bool) {
	r := s.Report
	switch {
	case s.State == orchestrator.Running:
		fmt.Fprintf(w, "running: %s\n", s.Holder)
	case s.State == orchestrator.Interrupted && r.Resume == orchestrator.ResumesAsAdvised:
		fmt.Fprintln(w, "interrupted") // the reason its last run ended says what to do
	case s.State == orchestrator.Interrupted:
		fmt.Fprintln(w, "interrupted: run the same command to resume")
	default:
		text := "finished"
		if s.Holder != "" {
			text += "; being retried by " + s.Holder
		}
		if fmt.Fprintln(w, text); isVerified {
			fmt.Fprintln(w, verified(r))
		}
		progress.WriteReport(w, r, reportHints{})
		return
	}
	progress.WriteCommitted(w, r, reportHints{})
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
