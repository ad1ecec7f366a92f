package input

import (
	"slices"
	"sort"

	"github.com/gpurun/gpurun/chunk"
)

// A kept spool replaces a stream that cannot be read again: its files stay until the
// results of their records are committed.

// Keeper is a source that keeps copies of records until their results are committed.
type Keeper interface {
	Source
	// Committed reports that the results of records are committed.
	Committed(first, records int64)
}

// keptChunk is a chunk whose spool file is kept.
type keptChunk struct {
	first, records int64
	file           string
}

// keep notes which records a spool file holds. The caller must hold s.mu.
func (s *sequence) keep(c chunk.Chunk) {
	if s.options.Keep && c.File != "" {
		s.kept = append(s.kept, keptChunk{c.First, c.Records, c.File})
	}
}

// Committed removes the files of which every record is committed.
func (s *sequence) Committed(first, records int64) {
	if !s.options.Keep {
		return
	}
	s.mu.Lock()
	file := ""
	after := sort.Search(len(s.kept), func(i int) bool { return s.kept[i].first > first })
	if after > 0 && first < s.kept[after-1].first+s.kept[after-1].records {
		file = s.kept[after-1].file
	}
	s.mu.Unlock()
	s.release(file, records)
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := 0
	for gone < len(s.kept) {
		if _, ok := s.files[s.kept[gone].file]; ok {
			break
		}
		gone++
	}
	s.kept = slices.Delete(s.kept, 0, gone)
}
