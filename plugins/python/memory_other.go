//go:build !linux

package python

import (
	"os"
	"runtime"

	"github.com/gpurun/gpurun/internal/fault"
)

// memory is shared with the Python process; not supported here.
type memory struct {
	file *os.File
	data []byte
}

var memorySizes []int

func newMemory([]int) (*memory, error) {
	return nil, fault.New(fault.Incompatible, "Python kernels need Linux, but this is %s; run the file as a program that reads and writes lines", runtime.GOOS).WithCode(fault.NotAKernel, "python3 …")
}

func (m *memory) release(int, int) {}

func (m *memory) path() string { return "" }

func filePath(int, int) string { return "" }

func (m *memory) readOnly() (*os.File, error) { return m.file, nil }

func (m *memory) close() {}
