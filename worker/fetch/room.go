package fetch

import (
	"context"
	"sync"
)

// room counts the bytes in memory. A fetch that finds no room waits, and thereby slows down
// the host that it reads from, until files are released. One that a caller waits for does
// not: the caller may be the one who would release others.
type room struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	changed chan struct{} // closed and replaced when bytes are given back
}

func newRoom(limit int64) *room { return &room{limit: limit, changed: make(chan struct{})} }

// tryTake takes n bytes if there is room. A file that is larger than all of it fits alone.
func (r *room) tryTake(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used > 0 && r.used+n > r.limit {
		return false
	}
	r.used += n
	return true
}

// take takes n bytes when there is room, or when urgent is closed. It returns false if ctx
// ends first.
func (r *room) take(ctx context.Context, urgent <-chan struct{}, n int64) bool {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if r.tryTake(n) {
			return true
		}
		select {
		case <-changed:
		case <-urgent:
			r.mu.Lock()
			r.used += n
			r.mu.Unlock()
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// give gives n bytes back.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	close(r.changed)
	r.changed = make(chan struct{})
}
