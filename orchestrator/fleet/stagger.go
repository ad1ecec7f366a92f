package fleet

import (
	"context"
	"sync"
)

// stagger lets one worker open its kernel alone before the others do. A model that
// cannot be loaded then stops the job before every GPU has tried, and a model that must
// be downloaded or compiled first is ready for the others. With a nil stagger all open
// at once.
type stagger struct {
	turn   chan struct{} // holds one token: whose turn it is
	opened chan struct{} // closed when one is open
	once   sync.Once
}

func newStagger() *stagger {
	s := &stagger{turn: make(chan struct{}, 1), opened: make(chan struct{})}
	s.turn <- struct{}{}
	return s
}

// begin waits until a kernel may be opened or ctx ends. The caller must call done and
// pass whether the kernel is open.
func (s *stagger) begin(ctx context.Context) (done func(open bool)) {
	if s == nil {
		return func(bool) {}
	}
	select {
	case <-s.opened:
		return func(bool) {}
	case <-ctx.Done():
		return func(bool) {}
	case <-s.turn:
	}
	return func(open bool) {
		if open {
			s.once.Do(func() { close(s.opened) })
		}
		s.turn <- struct{}{}
	}
}
