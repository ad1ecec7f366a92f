package commit

import (
	"os"
	"sync"
)

// Limits on the files kept for reuse: about as much as is written between two durable points,
// which is when parts become spare.
const (
	maxSpares     = 64
	maxSpareBytes = 256 << 20
)

// spares are files of parts that are durable in the output. New parts overwrite them, which
// costs about half as much as creating a file, because the pages of the old one are already
// allocated.
//
// A spare keeps the name it had as a part. The journal no longer refers to it, so a job
// that resumes after a crash removes it.
type spares struct {
	mu     sync.Mutex
	files  []spare // the last is the most likely to be in the processor's cache
	bytes  int64
	closed bool
}

type spare struct {
	path  string
	bytes int64
}

// keep adds a file that is no longer used.
func (s *spares) keep(path string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.files) >= maxSpares || s.bytes+bytes > maxSpareBytes {
		_ = os.Remove(path)
		return
	}
	s.files = append(s.files, spare{path, bytes})
	s.bytes += bytes
}

// take removes and returns a file, or "" if there is none.
func (s *spares) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.files) - 1
	if last < 0 {
		return ""
	}
	file := s.files[last]
	s.files, s.bytes = s.files[:last], s.bytes-file.bytes
	return file.path
}

// close deletes the remaining files.
func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range s.files {
		_ = os.Remove(file.path)
	}
	s.files, s.bytes, s.closed = nil, 0, true
}
