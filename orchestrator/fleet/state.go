package fleet

import (
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// state is whether a job was asked to end, which it does not take back, and why.
type state struct {
	mu    sync.Mutex
	ended bool
	why   *fault.Error // the limit or the verdict that ended the job; nil: a request
}

// drain ends a running job and reports whether it was running. Workers end at their next batch
// boundary and get no more work.
func (s *state) drain(why *fault.Error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.ended, s.why = true, why
	return true
}

// stop ends a job, also one that is draining. What is being computed is discarded. The first reason
// counts.
func (s *state) stop(why *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = true; s.why == nil {
		s.why = why
	}
}

func (s *state) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended
}

// reason returns the limit or the verdict that ended the job, or nil.
func (s *state) reason() *fault.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}
