package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// advised is an error with what to do about the limit of the system that it met.
type advised struct {
	err    error
	advice string
}

func (a *advised) Error() string { return a.err.Error() + "; " + a.advice }
func (a *advised) Unwrap() error { return a.err }

// limits are those that a shell or a scheduler sets, and how their errors read. Errors
// of workers and kernels come as text.
var limits = []struct {
	resource int
	text     string // of the error; "" means any end of a process
	advice   string // with the limit in units of the shell's command
	unit     uint64
}{
	{unix.RLIMIT_NOFILE, "too many open files", "at most %d files may be open at a time: raise the limit (ulimit -n)", 1},
	{unix.RLIMIT_FSIZE, "file too large", "files are limited to %d KiB: raise the limit (ulimit -f)", 1 << 10},
	{unix.RLIMIT_AS, "cannot allocate memory", "the address space of each process is limited to %d KiB: raise the limit (ulimit -v)", 1 << 10},
	{unix.RLIMIT_AS, "", "the address space of each process is limited to %d KiB, which may be the reason: raise the limit (ulimit -v)", 1 << 10},
}

// adviseLimit adds to an error which limit of the system it met, if any.
func adviseLimit(err error) error {
	if err == nil || strings.Contains(err.Error(), "ulimit") {
		return err
	}
	text := err.Error()
	if e := fault.As(err); e != nil {
		text += "\n" + e.Detail
	}
	for _, l := range limits {
		if l.text == "" && !isProcessEnd(err) || !strings.Contains(text, l.text) {
			continue
		}
		var limit unix.Rlimit
		if unix.Getrlimit(l.resource, &limit) == nil && limit.Cur < unix.RLIM_INFINITY {
			return &advised{err, fmt.Sprintf(l.advice, limit.Cur/l.unit)}
		}
	}
	return err
}

// isProcessEnd reports whether a worker or a kernel has ended by itself.
func isProcessEnd(err error) bool {
	switch fault.KindOf(err) {
	case fault.Crash, fault.Worker, fault.Incompatible:
		return strings.Contains(err.Error(), "exit status") || strings.Contains(err.Error(), "killed by")
	}
	return false
}
