package fleet

import (
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
)

// stuckList holds the job's processes that do not exit after SIGKILL.
type stuckList struct {
	mu   sync.Mutex
	list []proc.Stuck
}

func (l *stuckList) add(stuck []proc.Stuck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range stuck {
		if !slices.Contains(l.list, s) {
			l.list = append(l.list, s)
		}
	}
}

// living returns those that still exist.
func (l *stuckList) living() []proc.Stuck {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.list), func(s proc.Stuck) bool { return !s.Lives() })
}

// Stuck returns the processes that cannot be killed.
func (f *Fleet) Stuck() []proc.Stuck { return f.stuck.living() }

// heldBy returns the fault of a slot whose worker left a process that cannot be killed,
// which may still be using the device; nil if there is none.
func heldBy(stuck []proc.Stuck) *fault.Error {
	for _, s := range stuck {
		if s.Lives() {
			return fault.GPULost.New("%s; it may still be using the device", s)
		}
	}
	return nil
}
