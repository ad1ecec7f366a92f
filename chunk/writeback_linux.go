package chunk

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback lets the disk begin with what was written. Whether it does is
// nobody's concern.
func startWriteback(file *os.File, offset, length int64) {
	if conn, err := file.SyscallConn(); err == nil { // it may be closed meanwhile
		_ = conn.Control(func(fd uintptr) {
			_ = unix.SyncFileRange(int(fd), offset, length, unix.SYNC_FILE_RANGE_WRITE)
		})
	}
}
