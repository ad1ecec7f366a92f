package scaling

import (
	"fmt"
	"time"
)

// A rule returns why a device should not grow to more workers now; "" if it may.
type rule func(f Figures, more int) string

// growRules are checked in this order; the first that objects gives the reason.
var growRules = []rule{atLimit, noTime, starved, gpuBusy, hostBusy, noMemory}

// ruleTime is the number of noTime, counted from 1.
const ruleTime = 2

// objection returns the number, from 1, of the rule that forbids growth to more workers,
// and why; 0 if none does.
func objection(f Figures, more int) (number int, why string) {
	for i, r := range growRules {
		if why := r(f, more); why != "" {
			return i + 1, why
		}
	}
	return 0, ""
}

func atLimit(f Figures, more int) string {
	if more > f.Workers {
		return ""
	}
	return "as many as there are CPU cores for"
}

// noTime: loading must pay off in the remaining time. A job of unknown length is
// expected to last as long again as it has run.
func noTime(f Figures, _ int) string {
	left := remaining(f)
	if left >= payOff*(f.Load+warmUp+windowLeast) {
		return ""
	}
	return fmt.Sprintf("loading more takes %s and would not pay off in the remaining %s", f.Load.Round(time.Second/10), left.Round(time.Second))
}

func remaining(f Figures) time.Duration {
	if f.Remaining < 0 {
		return f.Time
	}
	return f.Remaining
}

func starved(f Figures, _ int) string {
	if f.fed >= unfed {
		return ""
	}
	return fmt.Sprintf("kernels wait for input or output %.0f%% of the time", 100*(1-f.fed))
}

func gpuBusy(f Figures, _ int) string {
	if f.GPUBusy < busyGPU {
		return ""
	}
	return fmt.Sprintf("the GPU is %.0f%% busy", 100*f.GPUBusy)
}

func hostBusy(f Figures, _ int) string {
	if f.IdleCores < 0 || f.Cores <= 0 || 1-f.IdleCores/f.Cores < busyHost {
		return ""
	}
	return fmt.Sprintf("%.1f of %.0f CPU cores are busy", f.Cores-f.IdleCores, f.Cores)
}

func noMemory(f Figures, more int) string {
	added := more - f.Workers
	switch {
	case fitting(f.DeviceFree, f.DeviceEach, added) < added:
		return fmt.Sprintf("%d MiB of device memory are left and a worker uses %d", f.DeviceFree>>20, f.DeviceEach>>20)
	case fitting(f.HostFree, f.HostEach, added) < added:
		return fmt.Sprintf("%d MiB of host memory are left and a worker uses %d", f.HostFree>>20, f.HostEach>>20)
	}
	return ""
}

// fitting returns how many of the wanted workers fit in the free memory.
func fitting(free, each uint64, wanted int) int {
	if each == 0 {
		return wanted
	}
	return min(wanted, int(float64(free)/(Margin*float64(each))))
}

// target returns the next step: a doubling, or a quadrupling if device and host are mostly
// idle; less if the limit or memory allows only that. It is at least one more, so that the
// rules say what forbids it.
func target(f Figures, cap int) int {
	factor := 2
	if mostlyIdle(f) {
		factor = 4
	}
	more := min(factor*f.Workers, f.Limit)
	if cap > 0 {
		more = min(more, cap)
	}
	added := more - f.Workers
	added = min(fitting(f.DeviceFree, f.DeviceEach, added), fitting(f.HostFree, f.HostEach, added))
	if more > f.Workers {
		return f.Workers + max(1, added)
	}
	return f.Workers
}

// mostlyIdle reports whether four times the workers would still leave the GPU and the
// cores idle for a part of the time. Every step costs a load and a measurement; two
// doublings in one save half of that.
func mostlyIdle(f Figures) bool {
	used := f.Cores - f.IdleCores
	return f.GPUBusy >= 0 && f.GPUBusy < idleGPU && f.IdleCores >= 0 && 4*used < f.Cores
}
