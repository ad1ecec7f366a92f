package orchestrator

import (
	"cmp"
	"slices"
	"sync"
)

// SkippedInput is a file of which the rest was skipped because it is damaged.
type SkippedInput struct {
	File string `json:"file"`
	// Line is the first line that could not be read.
	Line int64 `json:"line"`
	// Rows: Line is the number of a row.
	Rows    bool   `json:"rows,omitempty"`
	Message string `json:"message"`
}

// skips collects them: several files are read at a time.
type skips struct {
	mu   sync.Mutex
	list []SkippedInput
}

func (s *skips) add(one SkippedInput) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
}

// all returns them in the order of their names.
func (s *skips) all() []SkippedInput {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.list)
	slices.SortFunc(list, func(a, b SkippedInput) int { return cmp.Compare(a.File, b.File) })
	return list
}
