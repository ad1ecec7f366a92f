package proc

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// StopWithParent sends this process SIGTERM when its parent exits, if ParentVariable names that parent: the
// Python package starts jobs in sessions of their own, which would survive a killed notebook.
func StopWithParent() {
	parent, err := strconv.Atoi(os.Getenv(ParentVariable))
	_ = os.Unsetenv(ParentVariable) // it is not the parent of what this process starts
	if err != nil {
		return
	}
	set := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the signal belongs to the thread that asks for it
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0)
		close(set)
		select {}
	}()
	<-set
	if os.Getppid() != parent {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}
}
