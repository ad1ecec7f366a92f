package proc

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func attributes(c Command) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: !c.Foreground}
	if c.DieWithParent {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}

// BecomeSubreaper makes orphaned descendants children of this process, so that
// KillChildren finds them, including those in their own session.
func BecomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// waitExited blocks until the child has exited, without reaping it, and reports whether it
// could.
func waitExited(pid int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

// hasChildren reports whether this process has children, and whether one of them has exited and
// is not reaped: one call instead of a look at every process of the machine.
func hasChildren() (some, dead bool) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	some = err != unix.ECHILD
	return some, some && (err != nil || info.Signo != 0)
}

// prepareThread sets what the child inherits from the calling thread.
func prepareThread(c Command) error {
	if err := setThreadAffinity(c.CPUs); err != nil {
		return fmt.Errorf("set affinity: %w", err)
	}
	if !c.BlockStopSignals {
		return nil
	}
	var set unix.Sigset_t
	const bits = 8 * int(unsafe.Sizeof(set.Val[0]))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		set.Val[int(s-1)/bits] |= 1 << (int(s-1) % bits)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	return nil
}

// setThreadAffinity binds the calling thread, and so its children, to the cpus that
// this process may use. If it may use none of them (a container on another socket), it
// changes nothing.
func setThreadAffinity(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var allowed, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	for _, cpu := range cpus {
		if allowed.IsSet(cpu) {
			set.Set(cpu)
		}
	}
	if set.Count() == 0 {
		return nil
	}
	return unix.SchedSetaffinity(0, &set)
}

// maxRSS is in kibibytes on Linux.
func maxRSS(usage *syscall.Rusage) int64 { return usage.Maxrss * 1024 }
