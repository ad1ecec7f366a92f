package exec

import (
	"fmt"
	"slices"
	"sync"
)

// maxWarnings limits how many warnings the user sees; the log has all of them.
const maxWarnings = 3

// warnings are problems to show to the user although no record fails.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// warnf logs a warning and, if it is one of the first, keeps it for the user.
func (w *warnings) warnf(format string, args ...any) {
	logf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) < maxWarnings {
		w.list = append(w.list, fmt.Sprintf(format, args...))
	}
}

// Warnings implements [plugins.Warner].
func (k *kernel) Warnings() []string {
	k.warnings.mu.Lock()
	defer k.warnings.mu.Unlock()
	return slices.Clone(k.warnings.list)
}
