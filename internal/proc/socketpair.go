package proc

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketPair returns two connected ends, one for this process and one for a
// child's ExtraFiles. Both are closed on exec. Closing ours, or a deadline on it,
// ends a blocked read.
func SocketPair() (ours, theirs *os.File, err error) {
	// Do not fork between creating the sockets and setting close-on-exec.
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		CloseOnExec(fds[0], fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	// Nonblocking, so that the poller handles our end.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "child"), os.NewFile(uintptr(fds[1]), "parent"), nil
}
