//go:build !linux

package proc

import "syscall"

func attributes(c Command) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: !c.Foreground} }

// BecomeSubreaper works on Linux only; elsewhere process groups must suffice. Without /proc there
// are no descendants to find either.
func BecomeSubreaper() error { return nil }

// waitExited is not available here: there is no portable wait that does not reap.
func waitExited(int) bool { return false }

// hasChildren cannot tell here.
func hasChildren() (some, dead bool) { return true, true }

func prepareThread(Command) error { return nil }

// maxRSS is in bytes on Darwin.
func maxRSS(usage *syscall.Rusage) int64 { return usage.Maxrss }
