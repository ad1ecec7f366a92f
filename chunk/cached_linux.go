package chunk

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCached is up to which size a read is tried as one of bytes that are in memory:
// copying more takes long enough for the scheduler to hear of it.
const maxCached = 256 << 10

// readCached reads what of the file is in memory, and never waits for the disk; it
// returns 0 where that is nothing, or cannot be known. Go's scheduler does not hear of
// it: told of a call, an idle process wakes a thread that watches for long ones, which
// costs more than a small read.
func readCached(file *os.File, buffer []byte, offset int64) (n int) {
	if len(buffer) == 0 || len(buffer) > maxCached {
		return 0
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		part := unix.Iovec{Base: unsafe.SliceData(buffer)}
		part.SetLen(len(buffer))
		// The offset is in two halves, of which the second is for machines whose
		// registers are too short for it.
		got, _, failed := unix.RawSyscall6(unix.SYS_PREADV2, fd, uintptr(unsafe.Pointer(&part)), 1,
			uintptr(offset), uintptr(uint64(offset)>>32), unix.RWF_NOWAIT)
		if failed == 0 {
			n = int(got)
		}
	})
	return n
}
