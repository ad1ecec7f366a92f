package gpu

import (
	"errors"
	"time"
)

// API is the part of NVML that gpurun needs. The real one is in nvml_cgo.go; tests
// provide their own machine.
//
// Calls may run on several threads at once, but calls for one GPU on only one. After a
// failed Init the caller must not call anything (the real library would end the process
// with "symbol lookup error"). After a successful one it must call Shutdown once, when
// no call is in progress. Any call may block indefinitely.
type API interface {
	// Init loads the library and connects to the driver. Any error other than
	// ErrNoLibrary and ErrNotBuilt means that the driver is installed but does not
	// work.
	Init() error
	Shutdown() error
	DriverVersion() (string, error)
	// Count returns the number of GPUs of the machine, including those for which
	// Device fails.
	Count() (int, error)
	// Device returns the GPU at this index, from 0, in PCI order. ErrLost means that
	// it has fallen off the bus.
	Device(index int) (Handle, error)
	// NewEventSet returns an empty set for critical errors. The caller must free it before
	// Shutdown.
	NewEventSet() (EventSet, error)
}

// Handle is one GPU or MIG instance, valid until Shutdown. Each method may fail with ErrLost,
// or with any other error if the driver or the card does not support it.
type Handle interface {
	UUID() (string, error)
	Name() (string, error)
	// Memory fails only with ErrLost; it is unknown if the device does not report it.
	Memory() (Optional[Memory], error)
	PCIBusID() (string, error)
	// CPUs returns the numbers of the CPUs near the GPU, in ascending order.
	CPUs() ([]int, error)
	// Sense fills in what the device reports and leaves the rest unchanged. It fails
	// only with ErrLost: an unsupported value is not a failure.
	Sense(*Sample) error
	// Instances reports whether the GPU is in MIG mode, in which it is used only
	// through its instances, and returns them. A driver without MIG support returns
	// false.
	Instances() (enabled bool, list []Instance, err error)
}

// Instance is a MIG instance of a GPU: a compute instance in a GPU instance.
type Instance struct {
	Handle
	Index, GPUInstance, ComputeInstance int
}

// EventSet receives the events of a set of GPUs. The rules of API apply.
type EventSet interface {
	// Add makes the set report this GPU's critical errors from now on. It fails with
	// ErrLost, or with any other error if the card or the driver does not report them.
	Add(gpu Handle) error
	// Wait returns the next event: its Xid and the GPU, as a handle that equals the one
	// that was added or has its UUID. ErrTimeout means that there was none in this time.
	// ErrLost means that some GPU of the set is lost; from then on every call returns it
	// at once.
	Wait(timeout time.Duration) (gpu Handle, xid uint64, err error)
	Free() error
}

var (
	// ErrTimeout is returned by a Wait without an event.
	ErrTimeout = errors.New("no event within the timeout")
	// ErrNoLibrary is returned by Init if libnvidia-ml.so.1 cannot be opened: usually
	// on a machine without an NVIDIA driver.
	ErrNoLibrary = errors.New("libnvidia-ml.so.1 not found")
	// ErrNotBuilt is returned by Init in a binary built without cgo.
	ErrNotBuilt = errors.New("this gpurun was built without NVML (no C compiler)")
	// ErrLost is returned for a GPU that is unusable until it is reset.
	ErrLost = errors.New("the GPU is lost")
)
