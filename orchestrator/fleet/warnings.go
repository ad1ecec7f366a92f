package fleet

import (
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// maxWarnings bounds the notices that kernels cause; the workers' logs have all of them.
const maxWarnings = 5

// warnings are those of kernels that the user has been shown, by their shape: workers
// that warn of the same thing are one notice.
type warnings struct {
	mu    sync.Mutex
	shown map[string]bool
}

// isNew reports whether a warning is to be shown, and notes that it is.
func (w *warnings) isNew(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	shape := fault.Shape(text)
	if w.shown[shape] || len(w.shown) == maxWarnings {
		return false
	}
	if w.shown == nil {
		w.shown = make(map[string]bool)
	}
	w.shown[shape] = true
	return true
}

// warn shows what a kernel has to report although no record fails.
func (f *Fleet) warn(slot event.Slot, list []string) {
	for _, text := range list {
		if f.warnings.isNew(text) {
			f.Emit(event.Notice{Text: slot.Name + ": warning: " + text})
		}
	}
}
