package commit

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback asks the system to start writing a range. Errors do not matter.
func startWriteback(file *os.File, offset, length int64) {
	if conn, err := file.SyscallConn(); err == nil { // the file may be closed concurrently
		_ = conn.Control(func(fd uintptr) {
			_ = unix.SyncFileRange(int(fd), offset, length, unix.SYNC_FILE_RANGE_WRITE)
		})
	}
}
