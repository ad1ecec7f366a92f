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
// file uses only calls that every driver since 2019 has.
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
	return result(nvml.SystemGetDriverVersion())
}

func (library) Count() (int, error) {
	return result(nvml.DeviceGetCount())
}

func (library) Device(index int) (Handle, error) {
	device, err := result(nvml.DeviceGetHandleByIndex(index))
	if err != nil {
		return nil, err
	}
	return handle{device}, nil
}

type handle struct{ device nvml.Device }

func (h handle) UUID() (string, error) {
	return result(h.device.GetUUID())
}

func (h handle) Name() (string, error) {
	return result(h.device.GetName())
}

func (h handle) PCIBusID() (string, error) {
	info, err := result(h.device.GetPciInfo())
	var id []byte
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		id = append(id, byte(c))
	}
	return string(id), err
}

// CPUs requests a set of 8192, the most that Linux is built for: the number of CPUs this
// process may use does not limit how high their numbers are. (go-nvml divides by 8, but
// a word holds 64: hence 1024.)
func (h handle) CPUs() ([]int, error) {
	words, err := result(h.device.GetCpuAffinity(1024))
	var cpus []int
	for i, word := range words {
		for ; word != 0; word &= word - 1 {
			cpus = append(cpus, i*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return cpus, err
}

func (library) NewEventSet() (EventSet, error) {
	set, err := result(nvml.EventSetCreate())
	return eventSet{set}, err
}

type eventSet struct{ set nvml.EventSet }

func (e eventSet) Add(gpu Handle) error {
	device := gpu.(handle).device
	types, err := result(device.GetSupportedEventTypes())
	if err != nil {
		return err
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
