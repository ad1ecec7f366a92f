package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/trial"
)

// exitHelp is the text of gpurun help exit-codes; exitCode implements it.
const exitHelp = `Exit codes of all gpurun commands:

  0    success: every record succeeded or was dropped
  1    internal error: a bug in gpurun
  2    usage error, bad configuration, missing or unreadable input, output exists
  3    finished, some records failed: they are kept, marked with "_error"; or part of
       a damaged input was skipped (--bad-input skip); or some shards failed (--merge)
  4    no usable device
  5    the kernel is unusable or fails on every record, or no file can be fetched
  6    conflict: the job folder is locked, damaged or belongs to another job; or the
       input changed or the output path was taken while the job ran
  7    stopped, resumable: disk full, read or write error, --halt, --max-time,
       --max-requests, --max-tokens-total, or a kernel file was edited during the run
  130  interrupted (SIGINT), resumable
  141  the reader of the output closed it, as head does
  143  interrupted (SIGTERM or SIGHUP), resumable

Run the same command again to resume a job. A job that reads a stream resumes if the
same bytes arrive again; one that writes to a stream cannot be resumed. gpurun warns
when such a job starts and when it stops.`

// newExitCodes adds a help topic: a command that cannot be run.
func newExitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes and their meaning", Long: exitHelp}
}

// errSomeFailed means that the job finished and some records failed. The report has
// already shown it.
var errSomeFailed = trial.ErrSomeFailed

// stoppedBy is the error of a job stopped by a signal.
type stoppedBy struct {
	error
	signal syscall.Signal
}

func (s *stoppedBy) Unwrap() error { return s.error }

// exitCode maps every error to the exit status.
func exitCode(err error) int {
	var stopped *stoppedBy
	var child childExit
	var shards *cluster.MissingError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSomeFailed), errors.As(err, &shards) && shards.Failed:
		return 3
	case errors.As(err, &child):
		return int(child)
	case closedPipe(err):
		return 141 // the shell's status for SIGPIPE
	case errors.As(err, &stopped) && stopped.signal == syscall.SIGINT:
		return 130
	case errors.As(err, &stopped):
		return 143
	}
	switch fault.KindOf(err) {
	case fault.Usage:
		return 2
	case fault.NoDevice, fault.Device:
		return 4
	case fault.Incompatible, fault.Crash, fault.Timeout:
		return 5
	case fault.Conflict:
		return 6
	case fault.Storage, fault.Stopped:
		return 7
	case fault.Canceled:
		return 130
	}
	return 1
}

// closedPipe reports whether a job ended because the reader of its output closed the
// pipe. That is not a failure and needs no message.
func closedPipe(err error) bool {
	return fault.KindOf(err) == fault.Storage && errors.Is(err, syscall.EPIPE)
}

// alreadyReported reports whether err needs no further message.
func alreadyReported(err error) bool {
	return err == nil || errors.Is(err, errSomeFailed) || errors.As(err, new(childExit)) || closedPipe(err)
}

// message returns the text to show for err, "" if it has already been reported.
func message(err error) string {
	if alreadyReported(err) {
		return ""
	}
	e := fault.As(fault.Bug.Wrap(err))
	text := err.Error()
	if e.Code != "" {
		text += " [" + string(e.Code) + "]"
	}
	if e.Detail != "" {
		text += "\n  | " + strings.Join(strings.Split(e.Detail, "\n"), "\n  | ")
	}
	if e.Kind == fault.Unknown {
		text += "\nThis is a bug in gpurun; please report it."
	}
	return text
}

// writeErrorEvent is the JSON form of message.
func writeErrorEvent(out io.Writer, err error) {
	if !alreadyReported(err) {
		progress.WriteError(out, fault.Bug.Wrap(err))
	}
}

// wantsEvents reports whether standard error is reserved for JSON events. It also checks
// os.Args, since a usage error may have stopped flag parsing before this flag.
func wantsEvents(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("json-events")
	switch {
	case flag == nil:
		return false
	case flag.Changed:
		return flag.Value.String() == "-"
	}
	return slices.Contains(os.Args, "--json-events") || slices.Contains(os.Args, "--json-events=-") || os.Getenv(variable(flag)) == "-"
}
