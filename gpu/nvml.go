package gpu

import (
	"errors"
	"time"
)

// API is the little that gpurun needs of NVML. The real one is in nvml_cgo.go;
// tests bring a machine of their own.
//
// Calls may be made on several threads at once, but those for one GPU on one. The
// caller calls nothing at all after an Init that failed (the real library would end
// the process with "symbol lookup error"), and calls Shutdown once after an Init that
// did not, when no call is in progress. Any call may block for as long as the driver
// likes.
type API interface {
	// Init loads the library and connects to the driver. ErrNoLibrary and
	// ErrNotBuilt are the errors with a meaning; any other says that the driver
	// is there and does not work.
	Init() error
	Shutdown() error
	DriverVersion() (string, error)
	// Count returns the number of GPUs of the machine, those included whose
	// handle is then refused.
	Count() (int, error)
	// Device returns the GPU at this index, from 0, in PCI order. ErrLost: it
	// was there, and has fallen off the bus.
	Device(index int) (Handle, error)
}

// Handle is one GPU, valid until Shutdown. Each method may fail with ErrLost,
// and with any other error where the driver or the card does not support it.
type Handle interface {
	UUID() (string, error)
	Name() (string, error)
	Memory() (total, free uint64, err error)
	PCIBusID() (string, error)
	// CPUs returns the numbers of the CPUs near the GPU, in ascending order.
	CPUs() ([]int, error)
}

// Partitioned is what a Handle may offer beside: the parts of its GPU.
type Partitioned interface {
	// Instances reports whether the GPU is in MIG mode, in which it is used only
	// through its instances, and returns those. A driver that does not know MIG
	// answers false.
	Instances() (enabled bool, list []Instance, err error)
}

// Instance is a MIG instance of a GPU: a compute instance in a GPU instance.
type Instance struct {
	Handle
	Index, GPUInstance, ComputeInstance int
}

// Sensors is what a Handle may offer beside: how its device is doing.
type Sensors interface {
	// Sense fills in what the device tells, and leaves the rest as it is. It fails
	// with ErrLost alone: a value that is not supported is no failure.
	Sense(*Sample) error
	// SenseMemory asks for the memory alone; unknown if it is not told.
	SenseMemory() (Optional[Memory], error)
}

// Events is what an API may offer beside: to be told of critical errors. It is a
// second interface because an inventory needs none of it. The rules of API hold.
type Events interface {
	// NewEventSet returns an empty set, to be freed before Shutdown.
	NewEventSet() (EventSet, error)
}

// EventSet is some GPUs and what happens to them.
type EventSet interface {
	// Add makes the set tell of this GPU's critical errors from now on. It fails
	// with ErrLost, and with any other error where the card or the driver does
	// not tell of them.
	Add(gpu Handle) error
	// Wait returns the next event: its Xid and the GPU, as a handle that equals
	// the one that was added or has its UUID. ErrTimeout: there was none in this
	// time. ErrLost: a GPU of the set is lost, without saying which; this comes
	// at once, and every time from then on.
	Wait(timeout time.Duration) (gpu Handle, xid uint64, err error)
	Free() error
}

var (
	// ErrTimeout is the answer of a wait in which nothing happened.
	ErrTimeout = errors.New("nothing happened")
	// ErrNoLibrary is Init's answer where libnvidia-ml.so.1 cannot be opened:
	// as a rule, a machine without an NVIDIA driver.
	ErrNoLibrary = errors.New("libnvidia-ml.so.1 not found")
	// ErrNotBuilt is Init's answer in a binary that was built without cgo.
	ErrNotBuilt = errors.New("this gpurun was built without NVML (no C compiler)")
	// ErrLost is the answer for a GPU that is not usable before a reset.
	ErrLost = errors.New("the GPU is lost")
)
