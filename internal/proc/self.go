package proc

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopSignals are sent to every process of a job: by schedulers, by terminals, and by
// readers that close a pipe.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE}

// SurviveStopSignals makes this process carry on when it receives SIGINT, SIGTERM,
// SIGHUP or SIGPIPE. Only the orchestrator acts on the first three, and tells the others
// in its own way.
//
// It installs handlers instead of ignoring the signals: exec resets a handler to the
// default action but keeps an ignored signal ignored, and a program that a kernel starts
// could then not be terminated. A signal that was ignored when this process started,
// SIGHUP under nohup, stays ignored here and in what it starts.
func SurviveStopSignals() {
	survived := slices.DeleteFunc(slices.Clone(stopSignals), signal.Ignored)
	if len(survived) > 0 { // Notify takes no signal for all of them
		signal.Notify(make(chan os.Signal, 1), survived...)
	}
}

// SurviveClosedStderr makes os.Stderr a copy of descriptor 2 with another number. Go ends
// the process by SIGPIPE when a write to descriptor 1 or 2 meets a closed pipe; on any
// other, the write only fails. A job must not end because nobody reads its messages any
// more, and standard output keeps the usual behavior.
func SurviveClosedStderr() {
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		os.Stderr = os.NewFile(uintptr(fd), os.Stderr.Name())
	}
}

// CloseOnExec marks descriptors that this process inherited, so that what it
// starts does not hold them open.
func CloseOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}
