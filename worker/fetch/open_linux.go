package fetch

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openBelow opens a regular file below a folder with one system call, where os.Root needs
// several for each folder of the path: that is most of the time of a small file. ok is
// false if it cannot; os.Root then opens the file, or says why it cannot be opened.
func openBelow(folder *os.File, name string) (file openedFile, ok bool) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(int(folder.Fd()), name, &how)
	if err != nil {
		return openedFile{}, false
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return openedFile{}, false
	}
	return openedFile{ReadCloser: descriptor(fd), size: stat.Size}, true
}

// descriptor reads a regular file without what os.File keeps for files that may block.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (d descriptor) Close() error { return unix.Close(int(d)) }
