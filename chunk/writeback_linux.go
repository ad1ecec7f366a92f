package chunk

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback lets the disk begin with what was written: the next durable point
// then finds most of it done, instead of waiting for all of it. It is a hint, and
// its failure is nobody's.
func startWriteback(file *os.File, offset, length int64) {
	_ = unix.SyncFileRange(int(file.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}
