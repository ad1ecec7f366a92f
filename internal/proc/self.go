package proc

import (
	"os/signal"
	"syscall"
)

// IgnoreStopSignals makes this process, and what it starts, ignore SIGINT,
// SIGTERM and SIGHUP. Schedulers and terminals send them to every process of a
// job; only the orchestrator acts on them, and tells the others in its own way.
func IgnoreStopSignals() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// CloseOnExec marks descriptors that this process inherited, so that what it
// starts does not hold them open.
func CloseOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}
