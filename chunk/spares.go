package chunk

import (
	"os"
	"sync"
)

// What is kept of files that are not needed any more: about as much as is written
// between two durable points, which is when they become spare.
const (
	maxSpares     = 64
	maxSpareBytes = 256 << 20
)

// spares are files of parts that are in the output, durably. The next parts are
// written over them, which costs about half of what a new file does: the pages of the
// old one are there already.
//
// A spare keeps the name that it had as a part. No journal knows it any more, so
// that, wherever a crash comes, whoever goes on with the job removes it.
type spares struct {
	mu     sync.Mutex
	files  []spare // the last is the one most likely in the processor's cache
	bytes  int64
	closed bool
}

type spare struct {
	path  string
	bytes int64
}

// keep takes a file that nobody else has any use for.
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

// take gives a file away, to one taker; "" if there is none.
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

// close removes what nobody has taken.
func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range s.files {
		_ = os.Remove(file.path)
	}
	s.files, s.bytes, s.closed = nil, 0, true
}
