//go:build cgo && linux

package gpu

import (
	"errors"
	"math/bits"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// BuiltWithNVML reports whether this binary can see GPUs at all, for `gpurun version`.
const BuiltWithNVML = true

func newNVML() API { return library{} }

// library is go-nvml's global library. It counts its users under a lock, so several
// may use it at once.
//
// Symbols are resolved on the first call, and a missing one ends the process. So this
// file uses only calls that every driver since 2019 has, such as the first version of
// the memory call (total and free are the same in the second).
type library struct{}

func (library) Init() error {
	switch ret := nvml.Init(); ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return ErrNoLibrary
	default:
		return initError(ret)
	}
}

func (library) Shutdown() error { return asError(nvml.Shutdown()) }

func (library) DriverVersion() (string, error) {
	version, ret := nvml.SystemGetDriverVersion()
	return version, asError(ret)
}

func (library) Count() (int, error) {
	count, ret := nvml.DeviceGetCount()
	return count, asError(ret)
}

func (library) Device(index int) (Handle, error) {
	device, ret := nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, asError(ret)
	}
	return handle{device}, nil
}

type handle struct{ device nvml.Device }

func (h handle) UUID() (string, error) {
	uuid, ret := h.device.GetUUID()
	return uuid, asError(ret)
}

func (h handle) Name() (string, error) {
	name, ret := h.device.GetName()
	return name, asError(ret)
}

func (h handle) Memory() (total, free uint64, err error) {
	memory, ret := h.device.GetMemoryInfo()
	return memory.Total, memory.Free, asError(ret)
}

func (h handle) PCIBusID() (string, error) {
	info, ret := h.device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return "", asError(ret)
	}
	id := make([]byte, 0, len(info.BusId))
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		id = append(id, byte(c))
	}
	return string(id), nil
}

// CPUs requests a set of 8192, the most that Linux is built for: the number of CPUs this
// process may use does not limit how high their numbers are. (go-nvml divides by 8, but
// a word holds 64: hence 1024.)
func (h handle) CPUs() ([]int, error) {
	words, ret := h.device.GetCpuAffinity(1024)
	if ret != nvml.SUCCESS {
		return nil, asError(ret)
	}
	var cpus []int
	for i, word := range words {
		for ; word != 0; word &= word - 1 {
			cpus = append(cpus, i*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return cpus, nil
}

// NewEventSet is part of Events.
func (library) NewEventSet() (EventSet, error) {
	set, ret := nvml.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, asError(ret)
	}
	return eventSet{set}, nil
}

type eventSet struct{ set nvml.EventSet }

func (e eventSet) Add(gpu Handle) error {
	device := gpu.(handle).device
	types, ret := device.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return asError(ret)
	}
	if types&nvml.EventTypeXidCriticalError == 0 {
		return errors.New("the GPU does not report critical errors")
	}
	return asError(device.RegisterEvents(nvml.EventTypeXidCriticalError, e.set))
}

func (e eventSet) Wait(timeout time.Duration) (Handle, uint64, error) {
	event, ret := e.set.Wait(uint32(timeout.Milliseconds()))
	switch {
	case ret == nvml.ERROR_TIMEOUT, ret == nvml.SUCCESS && event.EventType != nvml.EventTypeXidCriticalError:
		return nil, 0, ErrTimeout
	case ret != nvml.SUCCESS:
		return nil, 0, asError(ret)
	}
	return handle{event.Device}, event.EventData, nil
}

func (e eventSet) Free() error { return asError(e.set.Free()) }
