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

// SurviveStopSignals makes this process survive SIGINT, SIGTERM, SIGHUP and SIGPIPE. Only
// the orchestrator acts on the first three, and stops the others by its own messages.
//
// It installs handlers instead of ignoring the signals: exec resets a handler to the
// default action but keeps an ignored signal ignored, and a program that a kernel starts
// could then not be terminated. A signal that was ignored when this process started,
// SIGHUP under nohup, stays ignored here and in what it starts.
func SurviveStopSignals() {
	survived := slices.DeleteFunc(slices.Clone(stopSignals), signal.Ignored)
	if len(survived) > 0 { // without arguments, Notify would take all signals
		signal.Notify(make(chan os.Signal, 1), survived...)
	}
}

// SurviveClosedStderr makes this process survive writes to standard error after the pipe
// was closed: a job must not end because its messages are no longer read.
func SurviveClosedStderr() { os.Stderr = Unsignaled(os.Stderr) }

// Unsignaled returns a copy of a file with a descriptor above 2. Go kills the process with
// SIGPIPE when a write to descriptor 1 or 2 hits a closed pipe; on any other descriptor the
// write only fails. If it cannot make a copy, it returns the file itself.
func Unsignaled(file *os.File) *os.File {
	raw, err := file.SyscallConn() // Fd would make it blocking, also for other holders
	if err != nil {
		return file
	}
	duplicate := -1
	err = raw.Control(func(fd uintptr) {
		if n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			duplicate = n
		}
	})
	if err != nil || duplicate < 0 {
		return file
	}
	return os.NewFile(uintptr(duplicate), file.Name())
}

// CloseOnExec marks descriptors that this process inherited, so that its children do not
// hold them open.
func CloseOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}
