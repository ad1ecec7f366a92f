package python

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shmem"
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
	if runtime.GOOS != "linux" {
		return nil, fault.NotAKernel.New("Python kernels need Linux, but this is %s; run the file as a program that reads and writes lines", runtime.GOOS).Set("python3 …")
	}
	return nil, fault.SharedMemory.New("create the memory shared with Python: %w%s", failed, limitHint(failed))
}

// limitHint names the limit that caused a failure.
func limitHint(err error) string {
	switch {
	case errors.Is(err, syscall.EFBIG):
		return "; the file size is limited (ulimit -f): raise the limit to 64 MiB or more"
	case errors.Is(err, syscall.ENOMEM):
		return "; the address space is probably limited (ulimit -v): raise the limit"
	}
	return ""
}

func mapMemory(size int) (*memory, error) {
	file, err := shmem.Create("gpurun-python", size)
	if err != nil {
		return nil, err
	}
	data, err := shmem.Map(int(file.Fd()), 0, size, true)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &memory{file, data}, nil
}

// keepBytes is the size below which a freed block keeps its pages.
const keepBytes = 64 << 20

// release returns the pages of an outsized block to the system.
func (m *memory) release(start, end int) {
	if end-start >= keepBytes {
		shmem.Drop(m.data, start, end)
	}
}

// path is where other processes of this user can open the memory while it exists.
func (m *memory) path() string { return filePath(os.Getpid(), int(m.file.Fd())) }

func filePath(pid, descriptor int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, descriptor) }

// readOnly opens the memory for a process that must not write to it.
func (m *memory) readOnly() (*os.File, error) { return os.Open(m.path()) }

func (m *memory) close() {
	shmem.Unmap(m.data)
	m.file.Close()
}
