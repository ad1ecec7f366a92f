package python

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// memorySizes are tried in turn: address space is free, but some limit it, or the size
// of files. Pages are taken only where something is written.
var memorySizes = []int{16 << 30, 1 << 30, 64 << 20}

// memory is shared with the Python process: the first half is written here, the
// second there.
type memory struct {
	file *os.File
	data []byte
}

func newMemory() (*memory, error) {
	var failed error
	for _, size := range memorySizes {
		m, err := mapMemory(size)
		if err == nil {
			return m, nil
		}
		failed = err // the smallest of them says most
	}
	return nil, fault.New(fault.Usage, "make memory to share with Python: %w%s", failed, limitHint(failed))
}

// limitHint names the limit that a failure is due to.
func limitHint(err error) string {
	switch {
	case errors.Is(err, unix.EFBIG):
		return "; the size of files is limited (ulimit -f): raise the limit to 64 MiB or more"
	case errors.Is(err, unix.ENOMEM):
		return "; the address space is probably limited (ulimit -v): raise the limit"
	}
	return ""
}

func mapMemory(size int) (*memory, error) {
	fd, err := unix.MemfdCreate("gpurun-python", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	m := &memory{file: os.NewFile(uintptr(fd), "gpurun-python")}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		m.close()
		return nil, fmt.Errorf("size %d: %w", size, err)
	}
	// A kernel that made it smaller would kill this process at its next look.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		m.close()
		return nil, fmt.Errorf("seal: %w", err)
	}
	if m.data, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.close()
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	_ = unix.Madvise(m.data, unix.MADV_DONTDUMP) // a core dump would hold all of it, holes included
	return m, nil
}

// keepBytes is how large a block may be and keep its pages when it is free.
const keepBytes = 64 << 20

// release gives the pages of an outsized block back to the system.
func (m *memory) release(start, end int) {
	if end-start < keepBytes {
		return
	}
	const page = 4096
	start, end = (start+page-1)/page*page, end/page*page
	_ = unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(start), int64(end-start))
}

func (m *memory) close() {
	if m.data != nil {
		_ = unix.Munmap(m.data)
		m.data = nil
	}
	m.file.Close()
}
