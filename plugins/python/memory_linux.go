package python

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// memorySizes are tried in turn. Address space is free, but some systems limit it, or
// the size of files. Only pages that are written use memory.
var memorySizes = []int{16 << 30, 1 << 30, 64 << 20}

// memory is shared with Python. Of the memory for records and results, this process
// writes the first half and Python the second.
type memory struct {
	file *os.File
	data []byte
}

// newMemory creates memory of the first of these sizes that the system allows.
func newMemory(sizes []int) (*memory, error) {
	var failed error
	for _, size := range sizes {
		m, err := mapMemory(size)
		if err == nil {
			return m, nil
		}
		failed = err // the error for the smallest size is the most telling
	}
	return nil, fault.New(fault.Usage, "create the memory shared with Python: %w%s", failed, limitHint(failed))
}

// limitHint names the limit that caused a failure.
func limitHint(err error) string {
	switch {
	case errors.Is(err, unix.EFBIG):
		return "; the file size is limited (ulimit -f): raise the limit to 64 MiB or more"
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
	// If a kernel shrank it, this process would crash on its next access.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		m.close()
		return nil, fmt.Errorf("seal: %w", err)
	}
	if m.data, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.close()
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	_ = unix.Madvise(m.data, unix.MADV_DONTDUMP) // a core dump would contain all of it, holes included
	return m, nil
}

// keepBytes is the size below which a freed block keeps its pages.
const keepBytes = 64 << 20

// release returns the pages of an outsized block to the system.
func (m *memory) release(start, end int) {
	if end-start < keepBytes {
		return
	}
	const page = 4096
	start, end = (start+page-1)/page*page, end/page*page
	_ = unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(start), int64(end-start))
}

// path is where other processes of this user can open the memory while it exists.
func (m *memory) path() string { return filePath(os.Getpid(), int(m.file.Fd())) }

func filePath(pid, descriptor int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, descriptor) }

// readOnly opens the memory for a process that must not write to it.
func (m *memory) readOnly() (*os.File, error) { return os.Open(m.path()) }

func (m *memory) close() {
	if m.data != nil {
		_ = unix.Munmap(m.data)
		m.data = nil
	}
	m.file.Close()
}
