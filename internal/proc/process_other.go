//go:build !linux

package proc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes(c Command) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: !c.Foreground} }

// waitExited is not available here: there is no portable wait that does not reap.
func waitExited(int) bool { return false }

func prepareThread(Command) error { return nil }

// maxRSS is in bytes on Darwin.
func maxRSS(usage *syscall.Rusage) int64 { return usage.Maxrss }

func signalName(s syscall.Signal) string { return unix.SignalName(s) }
