package exec

import (
	"fmt"
	"slices"
	"sync"
)

// maxWarnings bounds what the user is shown: the log has everything.
const maxWarnings = 3

// warnings are for the user, although no record fails.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// warnf logs a warning, and keeps one of the first for the user.
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
