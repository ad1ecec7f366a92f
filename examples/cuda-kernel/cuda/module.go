package cuda

import (
	"bytes"
	"runtime"
	"strings"
	"unsafe"
)

// Module is compiled code on the device.
type Module struct {
	device *Device
	handle uintptr
}

// Numbers of cuda.h's CUjit_option.
const (
	jitErrorLogBuffer     = 5
	jitErrorLogBufferSize = 6
)

// LoadModule has the driver compile PTX for the device, which it keeps in a cache
// of its own (~/.nv/ComputeCache), and loads the code.
func (d *Device) LoadModule(ptx []byte) (*Module, error) {
	image := append(bytes.Clone(ptx), 0) // it must end like a C string
	log := make([]byte, 8<<10)
	options := []int32{jitErrorLogBuffer, jitErrorLogBufferSize}
	// Values are numbers and addresses alike, so Go does not see that log is in use.
	var pinner runtime.Pinner
	pinner.Pin(&log[0])
	defer pinner.Unpin()
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	m := &Module{device: d}
	code := d.driver.ModuleLoadDataEx(&m.handle, &image[0], uint32(len(options)), &options[0], &values[0])
	if code == Success {
		return m, nil
	}
	err := d.driver.newError("cuModuleLoadDataEx", code)
	text, _, _ := bytes.Cut(log, []byte{0})
	err.Log = strings.TrimSpace(string(text))
	return nil, err
}

// Unload removes the code.
func (m *Module) Unload() error {
	return m.device.driver.check("cuModuleUnload", m.device.driver.ModuleUnload(m.handle))
}

// Function is an entry of a module.
type Function struct {
	device *Device
	handle uintptr
}

// Function finds an entry by its name: of a C++ function the mangled one, unless it
// is extern "C".
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{device: m.device}
	err := m.device.driver.check("cuModuleGetFunction", m.device.driver.ModuleGetFunction(&f.handle, m.handle, cString(name)))
	return f, err
}

// Size is a number of blocks, or of threads, in two dimensions.
type Size struct{ X, Y uint32 }

// Launch queues a run of the function. Arguments are pointers to values laid out as
// in C, one for each parameter; they are read before Launch returns.
func (f *Function) Launch(grid, block Size, sharedBytes int, stream *Stream, arguments ...unsafe.Pointer) error {
	driver := f.device.driver
	return driver.check("cuLaunchKernel", driver.LaunchKernel(f.handle, grid.X, grid.Y, 1, block.X, block.Y, 1,
		uint32(sharedBytes), stream.handle, unsafe.SliceData(arguments), nil))
}
