package proc

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketPair returns two connected ends, one for this process and one for a
// child's ExtraFiles. Both are closed on exec. Closing ours, or a deadline on it,
// ends a blocked read.
func SocketPair() (ours, theirs *os.File, err error) {
	fds, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	// Nonblocking, so that the poller handles our end.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "child"), os.NewFile(uintptr(fds[1]), "parent"), nil
}

// PacketPair returns two connected ends like SocketPair, for packets that may carry
// descriptors. Linux only.
func PacketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fds[0]), "child")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	return conn.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "parent"), nil
}

// socketPair does not let a process be forked between creating the sockets and setting
// close-on-exec.
func socketPair(kind int) (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if fds, err = unix.Socketpair(unix.AF_UNIX, kind, 0); err == nil {
		CloseOnExec(fds[0], fds[1])
	}
	return fds, err
}
