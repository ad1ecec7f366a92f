package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/progress"
)

// exitHelp is printed by gpurun help exit-codes; exitCode is the one place that acts on
// it.
const exitHelp = `Every gpurun command ends with one of these:

  0    done, every record succeeded or was dropped
  1    a bug in gpurun
  2    usage, bad configuration, missing or unreadable input, output exists
  3    finished, some records failed: they are kept, with an "_error"
  4    no usable device
  5    the kernel is unusable, or fails on everything
  6    the job folder is locked, damaged or another job's; the input was changed, or
       the output's name taken, while the job ran
  7    stopped, and the same command resumes: disk full, something cannot be read
       or written, --halt, --max-time, a file of the kernel was edited meanwhile
  130  interrupted (SIGINT), and the same command resumes
  141  whoever read the output closed it, as head does
  143  interrupted (SIGTERM, SIGHUP), and the same command resumes

A job that reads a stream or writes to one cannot resume: gpurun says so when it
starts and when it stops.`

// newExitCodes is a topic of help: a command that does nothing.
func newExitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What each exit status means", Long: exitHelp}
}

// errSomeFailed: the job finished, and some records failed. It has been reported.
var errSomeFailed = errors.New("some records failed")

// stoppedBy is the error of a job that a signal ended.
type stoppedBy struct {
	signal syscall.Signal
	err    error
}

func (s *stoppedBy) Error() string { return s.err.Error() }
func (s *stoppedBy) Unwrap() error { return s.err }

// hinted is an error with what to do next.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() + "; " + h.hint }
func (h *hinted) Unwrap() error { return h.err }

// usageError is a mistake in the command line itself.
type usageError struct{ err error }

func (u *usageError) Error() string { return u.err.Error() }
func (u *usageError) Unwrap() error { return u.err }

// toldError has been told in another form.
type toldError struct{ err error }

func (t *toldError) Error() string { return t.err.Error() }
func (t *toldError) Unwrap() error { return t.err }

// exitCode maps every error to the exit status.
func exitCode(err error) int {
	var usage *usageError
	var stopped *stoppedBy
	var child childExit
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSomeFailed):
		return 3
	case errors.As(err, &usage):
		return 2
	case errors.As(err, &child):
		return int(child)
	case closedPipe(err):
		return 141 // as if by SIGPIPE, which is what shells know
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

// closedPipe reports whether a job ended because nobody reads its output any more: that is
// no failure of anybody, and needs no message.
func closedPipe(err error) bool {
	return fault.KindOf(err) == fault.Storage && errors.Is(err, syscall.EPIPE)
}

// saidAll reports whether nothing is left to be said of how it ended.
func saidAll(err error) bool {
	var told *toldError
	return err == nil || errors.Is(err, errSomeFailed) || errors.As(err, &told) || closedPipe(err)
}

// message is what the user reads; "" if everything was said.
func message(err error) string {
	if saidAll(err) {
		return ""
	}
	text := err.Error()
	if e := fault.As(err); e != nil && e.Detail != "" {
		text += "\n  | " + strings.Join(strings.Split(e.Detail, "\n"), "\n  | ")
	}
	if fault.KindOf(err) == fault.Unknown {
		var usage *usageError
		var stopped *stoppedBy
		if !errors.As(err, &usage) && !errors.As(err, &stopped) {
			text += "\nThis is a bug in gpurun; please report it."
		}
	}
	return text
}

// writeErrorEvent is message for a program.
func writeErrorEvent(out io.Writer, err error) {
	if saidAll(err) {
		return
	}
	var usage *usageError
	if errors.As(err, &usage) {
		err = fault.Wrap(fault.Usage, err)
	}
	progress.WriteError(out, err)
}

// wantsEvents reports whether standard error is for a program, and for events alone. A
// mistake may have kept the flag from being read.
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
