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

// SurviveClosedStderr lets this process carry on when a write to standard error meets a
// closed pipe: a job must not end because nobody reads its messages any more.
func SurviveClosedStderr() { os.Stderr = Unsignaled(os.Stderr) }

// Unsignaled is a copy of a file with a descriptor above 2. Go ends the process by SIGPIPE
// when a write to descriptor 1 or 2 meets a closed pipe; on any other, the write only
// fails. If there can be no copy it is the file itself.
func Unsignaled(file *os.File) *os.File {
	raw, err := file.SyscallConn() // Fd would make it block, also for others who have it
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

// CloseOnExec marks descriptors that this process inherited, so that what it
// starts does not hold them open.
func CloseOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}
