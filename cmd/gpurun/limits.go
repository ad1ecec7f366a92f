package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// limits are the limits that a shell or a scheduler sets, with the text of their errors:
// errors of workers and kernels arrive as text.
var limits = []struct {
	resource int
	text     string // of the error; "" matches any process exit
	advice   string // %d is the limit, in the unit of ulimit
	unit     uint64
}{
	{unix.RLIMIT_NOFILE, "too many open files", "the limit is %d open files: raise it (ulimit -n)", 1},
	{unix.RLIMIT_FSIZE, "file too large", "files are limited to %d KiB: raise the limit (ulimit -f)", 1 << 10},
	{unix.RLIMIT_AS, "cannot allocate memory", "the address space of each process is limited to %d KiB: raise the limit (ulimit -v)", 1 << 10},
	{unix.RLIMIT_AS, "", "the address space of each process is limited to %d KiB, which may be the cause: raise the limit (ulimit -v)", 1 << 10},
}

// adviseLimit adds advice to an error that was caused by a system limit.
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
			return &hinted{err: err, hint: "; " + fmt.Sprintf(l.advice, limit.Cur/l.unit)}
		}
	}
	return err
}

// isProcessEnd reports whether a worker or kernel process exited.
func isProcessEnd(err error) bool {
	switch fault.KindOf(err) {
	case fault.Crash, fault.Worker, fault.Incompatible:
		return strings.Contains(err.Error(), "exit status") || strings.Contains(err.Error(), "killed by")
	}
	return false
}
