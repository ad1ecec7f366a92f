//go:build cgo && linux

package gpu

import (
	"errors"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// senses makes the calls of one sample, and stops once the GPU is lost.
type senses struct {
	lost   error
	failed error // of the last call; also nil for what the GPU does not support
}

// ask makes a call if the driver's library has it.
func ask[T any](s *senses, symbol string, call func() (T, nvml.Return)) Optional[T] {
	if s.lost != nil || !has(symbol) {
		return Optional[T]{}
	}
	value, ret := call()
	s.failed = nil
	if err := asError(ret); err != nil {
		switch {
		case errors.Is(err, ErrLost):
			s.lost = err
		case ret != nvml.ERROR_NOT_SUPPORTED:
			s.failed = err
		}
		return Optional[T]{}
	}
	return Some(value)
}

// convert converts a value if it is known.
func convert[T, U any](value Optional[T], to func(T) U) Optional[U] {
	if v, known := value.Get(); known {
		return Some(to(v))
	}
	return Optional[U]{}
}

func number(v uint32) int       { return int(int32(v)) } // a broken sensor reports -1
func milliwatt(v uint32) Watt   { return Watt(v) / 1000 }
func millijoule(v uint64) Joule { return Joule(v) / 1000 }

func (h handle) Sense(sample *Sample) error {
	s := &senses{}
	h.senseHeat(s, sample)
	h.senseLoad(s, sample)
	h.senseErrors(s, sample)
	sample.Memory = h.memory(s)
	sample.Processes = convert(
		ask(s, "nvmlDeviceGetComputeRunningProcesses", h.device.GetComputeRunningProcesses), processes)
	return s.lost
}

func (h handle) Memory() (Optional[Memory], error) {
	s := &senses{}
	memory := h.memory(s)
	return memory, s.lost
}

func (h handle) senseHeat(s *senses, sample *Sample) {
	threshold := func(which nvml.TemperatureThresholds) Optional[int] {
		limit := convert(ask(s, "nvmlDeviceGetTemperatureThreshold", func() (uint32, nvml.Return) {
			return h.device.GetTemperatureThreshold(which)
		}), number)
		if limit.Or(0) <= 0 { // some cards return 0 for no threshold
			return Optional[int]{}
		}
		return limit
	}
	sample.Temperature = convert(ask(s, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
		return h.device.GetTemperature(nvml.TEMPERATURE_GPU)
	}), number)
	if s.failed != nil {
		sample.TemperatureError = s.failed.Error()
	}
	sample.Slowdown = threshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	sample.Shutdown = threshold(nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)
	sample.Fan = convert(ask(s, "nvmlDeviceGetFanSpeed", h.device.GetFanSpeed), number)
	sample.Power = convert(ask(s, "nvmlDeviceGetPowerUsage", h.device.GetPowerUsage), milliwatt)
	sample.PowerLimit = convert(ask(s, "nvmlDeviceGetEnforcedPowerLimit", h.device.GetEnforcedPowerLimit), milliwatt)
	sample.Energy = convert(ask(s, "nvmlDeviceGetTotalEnergyConsumption", h.device.GetTotalEnergyConsumption), millijoule)
}

func (h handle) senseLoad(s *senses, sample *Sample) {
	clock := func(which nvml.ClockType) Optional[int] {
		return convert(ask(s, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return h.device.GetClockInfo(which) }), number)
	}
	sample.Utilization = convert(ask(s, "nvmlDeviceGetUtilizationRates", h.device.GetUtilizationRates),
		func(u nvml.Utilization) int { return int(u.Gpu) })
	sample.ClockSM, sample.ClockMemory = clock(nvml.CLOCK_SM), clock(nvml.CLOCK_MEM)
	reasons := ask(s, "nvmlDeviceGetCurrentClocksEventReasons", h.device.GetCurrentClocksEventReasons)
	if reasons.IsZero() { // its name before driver 535
		reasons = ask(s, "nvmlDeviceGetCurrentClocksThrottleReasons", h.device.GetCurrentClocksThrottleReasons)
	}
	sample.Throttle = convert(reasons, func(bits uint64) Reasons { return Reasons(bits) })
}

func (h handle) senseErrors(s *senses, sample *Sample) {
	count := func(which nvml.MemoryErrorType) Optional[uint64] {
		return ask(s, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
			return h.device.GetTotalEccErrors(which, nvml.VOLATILE_ECC)
		})
	}
	sample.ECCCorrected = count(nvml.MEMORY_ERROR_TYPE_CORRECTED)
	sample.ECCUncorrected = count(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
}

// memory prefers the second version of the call, which reports the driver's own share
// separately.
func (h handle) memory(s *senses) Optional[Memory] {
	if second := ask(s, "nvmlDeviceGetMemoryInfo_v2", h.device.GetMemoryInfo_v2); !second.IsZero() {
		return convert(second, func(m nvml.Memory_v2) Memory {
			return Memory{Total: m.Total, Used: m.Used, Free: m.Free, Reserved: m.Reserved}
		})
	}
	return convert(ask(s, "nvmlDeviceGetMemoryInfo", h.device.GetMemoryInfo), func(m nvml.Memory) Memory {
		return Memory{Total: m.Total, Used: m.Used, Free: m.Free}
	})
}

// notAvailable is NVML's value for the memory of a process that it cannot see.
const notAvailable = ^uint64(0)

func processes(list []nvml.ProcessInfo) []Process {
	out := make([]Process, 0, len(list))
	for _, p := range list {
		one := Process{PID: int(p.Pid)}
		if p.UsedGpuMemory != notAvailable {
			one.Memory = Some(p.UsedGpuMemory)
		}
		out = append(out, one)
	}
	return slices.Clip(out)
}

func (h handle) Instances() (enabled bool, list []Instance, err error) {
	for _, symbol := range []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"} {
		if !has(symbol) {
			return false, nil, nil
		}
	}
	mode, _, ret := h.device.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return false, nil, lostOnly(ret)
	}
	count, ret := h.device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return true, nil, lostOnly(ret)
	}
	for i := range count {
		device, ret := h.device.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS { // an empty slot
			if err := lostOnly(ret); err != nil {
				return true, nil, err
			}
			continue
		}
		one := Instance{Handle: handle{device}, Index: i}
		one.GPUInstance, _ = device.GetGpuInstanceId()
		one.ComputeInstance, _ = device.GetComputeInstanceId()
		list = append(list, one)
	}
	return true, list, nil
}

// lostOnly keeps ErrLost; any other error means "not supported".
func lostOnly(ret nvml.Return) error {
	if err := asError(ret); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// symbols caches which calls the driver's library has. A missing call would end the
// process with "symbol lookup error", so calls that not every driver has are looked up
// first.
//
// The library is opened a second time for this and stays open: another thread may close
// go-nvml's own handle at any time.
var symbols struct {
	mu      sync.Mutex
	library *dl.DynamicLibrary
	known   map[string]bool
}

// has reports whether the driver's library has a call. It must only be called after a
// successful Init.
func has(symbol string) bool {
	symbols.mu.Lock()
	defer symbols.mu.Unlock()
	if found, known := symbols.known[symbol]; known {
		return found
	}
	if symbols.library == nil {
		library := dl.New("libnvidia-ml.so.1", dl.RTLD_LAZY)
		if library.Open() != nil {
			return false
		}
		symbols.library, symbols.known = library, make(map[string]bool)
	}
	found := symbols.library.Lookup(symbol) == nil
	symbols.known[symbol] = found
	return found
}
