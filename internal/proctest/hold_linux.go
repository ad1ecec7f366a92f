package proctest

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// AllowHold lets any process of the user hold this one.
func AllowHold() {
	const any = ^uintptr(0)
	_ = unix.Prctl(unix.PR_SET_PTRACER, any, 0, 0, 0) // not every system requires it
}

// Seize traces the process up to its exit: a killed process stops there, and the system
// drops every further SIGKILL. The tracer is a thread; it releases the process when it
// exits.
func Seize(pid int) (release func(), err error) {
	seized, released := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_TRACEEXIT, 0, 0)
		if errno != 0 {
			seized <- errno
			return
		}
		seized <- nil
		<-released
	}()
	if err := <-seized; err != nil {
		return nil, err
	}
	var once sync.Once
	return func() { once.Do(func() { close(released) }) }, nil
}
