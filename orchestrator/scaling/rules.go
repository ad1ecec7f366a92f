package scaling

import (
	"fmt"
	"math"
	"time"
)

// A rule returns why a device should not grow to more workers now; "" if it may.
type rule func(f Figures, more int) string

// growRules are checked in this order; the first that objects gives the reason.
var growRules = []rule{atLimit, noTime, starved, hostBusy, noMemory}

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

// noTime: what more workers save in the remaining time must exceed what loading them costs. If the
// GPU is busy, they save little, unless the last step has shown that this share does not limit the rate.
func noTime(f Figures, more int) string {
	factor := math.Pow(float64(more)/float64(f.Workers), f.expected)
	busy := f.GPUBusy > 0 && !f.outgrown && factor > 1/f.GPUBusy
	if busy {
		factor = 1 / f.GPUBusy
	}
	switch {
	case pays(f, more, 1-1/factor):
		return ""
	case busy && f.GPUBusy >= busyGPU:
		return fmt.Sprintf("the GPU is %.0f%% busy", 100*f.GPUBusy)
	}
	return fmt.Sprintf("loading more takes %s and would not pay off in the remaining %s", f.Load.Round(time.Second/10), remaining(f).Round(time.Second))
}

// pays reports whether a change to that many workers pays off that saves this share of the time
// that remains after it. While workers load and are measured, they may cost the others half of
// their share.
func pays(f Figures, workers int, share float64) bool {
	more, fewer := max(workers, f.Workers), min(workers, f.Workers)
	cost := (f.Load + measuring).Seconds() * float64(more-fewer) / float64(2*more)
	return (remaining(f)-f.Load).Seconds()*share >= payOff*cost
}

// precision returns which error a rate may have that a doubling is compared with: a long job has
// time to find out.
func precision(f Figures) float64 { return max(0.02, min(0.06, 5/max(1, remaining(f).Seconds()))) }

// A job of unknown length is expected to last as long again as it has run.
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

// target returns the next step: a doubling, or more if device and host are mostly idle; less if the
// limit or memory allows only that. It is at least one more, so that the rules say what forbids it.
func target(f Figures, cap int) int {
	more := min(int(max(2, headroom(f))*float64(f.Workers)), f.Limit)
	if more > f.Limit/2 { // a step for the rest would cost more than it brings
		more = f.Limit
	}
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

// headroom returns by which factor the workers may grow until the GPU or the cores are busy; 1 if
// the use of the cores is unknown. Every step costs a load and a measurement; fewer steps save that.
func headroom(f Figures) float64 {
	if f.IdleCores < 0 {
		return 1
	}
	most := mostFactor
	if f.GPUBusy < 0 {
		most = blindFactor
	}
	return min(most, 1/max(f.GPUBusy, 1e-9), f.Cores/max(f.Cores-f.IdleCores, 1e-9))
}

// earlyTarget returns how many workers there are after early growth. The first batch may need as much
// memory again as the model.
func earlyTarget(f Figures, cap int) int {
	f.Workers, f.DeviceEach, f.HostEach = 1, 2*f.DeviceEach, 2*f.HostEach
	return target(f, cap)
}
