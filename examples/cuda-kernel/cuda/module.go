package cuda

import (
	"bytes"
	"runtime"
	"strings"
	"unsafe"
)

// Module is compiled code on the device.
type Module struct {
	driver *Driver
	handle uintptr
}

// Values of CUjit_option in cuda.h.
const (
	jitErrorLogBuffer     = 5
	jitErrorLogBufferSize = 6
)

// LoadModule compiles PTX for the device and loads the code. The driver caches the
// compiled code in ~/.nv/ComputeCache.
func (d *Device) LoadModule(ptx []byte) (*Module, error) {
	image := append(bytes.Clone(ptx), 0) // must be NUL-terminated
	log := make([]byte, 8<<10)
	options := []int32{jitErrorLogBuffer, jitErrorLogBufferSize}
	// The values hold numbers and addresses alike, so Go cannot see that log is in use.
	var pinner runtime.Pinner
	pinner.Pin(&log[0])
	defer pinner.Unpin()
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	m := &Module{driver: d.driver}
	code := d.driver.ModuleLoadDataEx(&m.handle, &image[0], uint32(len(options)), &options[0], &values[0])
	if code == Success {
		return m, nil
	}
	err := d.driver.newError("cuModuleLoadDataEx", code)
	text, _, _ := bytes.Cut(log, []byte{0})
	err.Log = strings.TrimSpace(string(text))
	return nil, err
}

// Unload unloads the code from the device.
func (m *Module) Unload() error {
	return m.driver.check("cuModuleUnload", m.driver.ModuleUnload(m.handle))
}

// Function is an entry point of a module.
type Function struct {
	driver *Driver
	handle uintptr
}

// Function finds an entry point by name. For a C++ function that is the mangled name,
// unless it is extern "C".
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{driver: m.driver}
	err := m.driver.check("cuModuleGetFunction", m.driver.ModuleGetFunction(&f.handle, m.handle, cString(name)))
	return f, err
}

// Size is a number of blocks, or of threads, in two dimensions.
type Size struct{ X, Y uint32 }

// Launch queues an execution of the function. Arguments are pointers to values laid out
// as in C, one per parameter; they are read before Launch returns.
func (f *Function) Launch(grid, block Size, sharedBytes int, stream *Stream, arguments ...unsafe.Pointer) error {
	return f.driver.check("cuLaunchKernel", f.driver.LaunchKernel(f.handle, grid.X, grid.Y, 1, block.X, block.Y, 1,
		uint32(sharedBytes), stream.handle, unsafe.SliceData(arguments), nil))
}
