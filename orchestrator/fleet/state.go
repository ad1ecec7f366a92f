package fleet

import (
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// stage is where a job is in its life. A job that runs to its end stays in the first.
type stage int

const (
	running  stage = iota
	draining       // workers end at their next batch boundary and get no more work
	stopped        // what is being computed is discarded
)

// state is a job's stage, which only increases, and why it left the first.
type state struct {
	mu    sync.Mutex
	stage stage
	why   *fault.Error // the limit or the verdict that ended the job; nil: a request
}

// drain lets a running job drain and reports whether it was running.
func (s *state) drain(why *fault.Error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != running {
		return false
	}
	s.stage, s.why = draining, why
	return true
}

// stop ends a job, also one that is draining. The first reason counts.
func (s *state) stop(why *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage = stopped; s.why == nil {
		s.why = why
	}
}

func (s *state) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage == running
}

// reason returns the limit or the verdict that ended the job, or nil.
func (s *state) reason() *fault.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}
