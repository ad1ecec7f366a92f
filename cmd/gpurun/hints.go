package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// onCPU is the advice for a job without a usable GPU.
const onCPU = "; --gpus cpu:N runs on the CPU"

// hints is what to append to a message with a code; %s is the code's value. For other codes,
// the value is a setting. Libraries return codes: only this command knows its flags.
var hints = map[fault.Code]string{
	fault.OutputExists:       "; --force replaces it",
	fault.OutputOfOtherFiles: "; --force computes all files again and replaces it; for new files only, write one output per input file: gpurun manual inputs",
	fault.OutputWithFailures: "; gpurun retry computes its failed records again; --force replaces it",
	fault.OutputTaken:        "; move it away, or pass --force to replace it; the same command then only renames the output",
	fault.JobFinished:        "; --force runs it again",
	fault.JobDamaged:         "; --fresh starts the job over",
	fault.ExtraLines:         "; --fresh starts the job over",
	fault.JobChanged:         "; undo that and run the same command again to resume, or pass --fresh to start over",
	fault.KernelEdited:       "; restore it and run the same command again to resume, or add --accept-changes kernel to keep what is done and continue with the new version",
	fault.InputChanged:       "; --fresh starts over; the same command resumes the job once the input is restored",
	fault.BadInput:           "; re-create the file, or pass --bad-input skip to continue without the rest of it",
	fault.NoColumns:          "; --keep %s keeps only these members of the records, next to the kernel's results; an output named *.parquet or *.arrow has columns to choose (--columns)",
	fault.LateBytes:          "; --input-format %s waits for them",
	fault.ColumnMismatch:     "; a retry keeps this type: gpurun retry -k FIXED, with a kernel that returns it, computes these records alone; to change it, compute all records again with --force, and name all columns of the output: --columns …,%s",
	fault.Archive:            "; --fetch path reads the file that a record names",
	fault.NoRequests:         `; to make a request of each record, give openai: or serve: a prompt: --kernel-config '{"model":"MODEL","prompt":"{%s}"}'`,
	fault.NoJob:              "; pass the output given to gpurun run with -o, and its --work-dir if it had one",
	fault.NoKernel:           " (-k %s)",
	fault.NoOutput:           " (-o %s)",
	fault.NoGPU:              onCPU,
	fault.Driver:             onCPU,
	fault.GPUsHidden:         onCPU,
	fault.NoGPUSupport:       onCPU,
	fault.SmallGPUs:          ": choose other GPUs with --gpus, or give each worker several with --gpus-per-worker",
	fault.NotAKernel:         "; for any other program use -k 'exec:%s'",
	fault.NoRun:              "; gpurun run --shard I/N divides it into N shards",
	fault.OtherRun:           "; use the same command on all machines, or remove the folder to start over",
	fault.BadShard:           "; remove %s and compute the shard again",
	fault.Leased:             ": run gpurun gpus deallocate %s first, or name another GPU with --gpu",
}

// hint returns what to append to a message with this code, "" if nothing.
func hint(code fault.Code, value string) string {
	text, ok := hints[code]
	if !ok && (code == "" || code.Known()) {
		text = " (--%s)"
	}
	switch needs := strings.Contains(text, "%s"); {
	case value == fault.Advised, needs && value == "":
		return ""
	case needs:
		return fmt.Sprintf(text, value)
	case (code == fault.JobDamaged || code == fault.ExtraLines) && value != "":
		return fmt.Sprintf("; --fresh --%s starts the job over and replaces its output", value)
	case code == fault.JobChanged && value != "":
		return text + fmt.Sprintf(", or --accept-changes %s to keep what is done and resume", value)
	}
	return text
}

// hinted is an error with a hint on what to do next.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() + h.hint }
func (h *hinted) Unwrap() error { return h.err }

// withHint adds the hint for the code of err, unless it already has one.
func withHint(err error) error {
	var done *hinted
	e := fault.As(err)
	if e == nil || errors.As(err, &done) || hint(e.Code, e.Value) == "" {
		return err
	}
	return &hinted{err: err, hint: hint(e.Code, e.Value)}
}

// showHints passes events to show with the hints for their codes.
func showHints(show func(orchestrator.Event)) func(orchestrator.Event) {
	return func(event orchestrator.Event) {
		switch e := event.(type) {
		case orchestrator.Notice:
			e.Text += hint(e.Code, e.Value)
			event = e
		case orchestrator.WorkerLost:
			e.Fault = hintedFault(e.Fault)
			event = e
		case orchestrator.Finished:
			e.Report.Causes = slices.Clone(e.Report.Causes)
			for i, f := range e.Report.Causes {
				e.Report.Causes[i].Example += hint(fault.Code(f.Code), f.Value)
			}
			event = e
		case orchestrator.ChunkGivenUp:
			e.Fault = hintedFault(e.Fault)
			event = e
		}
		show(event)
	}
}

func hintedFault(e *fault.Error) *fault.Error {
	if e == nil {
		return nil
	}
	c := *e
	c.Message += hint(e.Code, e.Value)
	return &c
}

// reportHints completes reports with flags and commands. The failed records of a shard cannot be
// retried alone.
type reportHints struct{ isShard bool }

func (reportHints) Hint(code orchestrator.Code, value string) string { return hint(code, value) }

// Retry returns the command that retries the failed records of a finished job; "" if there is none,
// as for those that were written to a stream.
func (h reportHints) Retry(r orchestrator.Report) string {
	if r.Streamed || h.isShard {
		return ""
	}
	if files.Absolute(r.Output)+spec.FolderSuffix != r.Folder {
		return fmt.Sprintf("gpurun retry --work-dir %s %s", progress.InFolder(r, ".."), r.Output)
	}
	return "gpurun retry " + r.Output
}
