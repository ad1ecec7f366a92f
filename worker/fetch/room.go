package fetch

import (
	"context"
	"sync"
)

// room counts what is in use: bytes in memory, or the requests of a host. A fetch that finds no
// room waits, and thereby slows down the host that it reads from, until others give theirs back.
// One that a caller waits for does not: the caller may be the one who would release others.
type room struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	changed chan struct{} // closed and replaced when something is given back
}

func newRoom(limit int64) *room { return &room{limit: limit, changed: make(chan struct{})} }

// take takes n when there is room, or when urgent is closed. What is larger than all of it fits
// alone. It returns false if ctx ends first.
func (r *room) take(ctx context.Context, urgent <-chan struct{}, n int64) bool {
	for hurried := false; ; {
		r.mu.Lock()
		changed, fits := r.changed, hurried || r.used == 0 || r.used+n <= r.limit
		if fits {
			r.used += n
		}
		r.mu.Unlock()
		if fits {
			return true
		}
		select {
		case <-changed:
		case <-urgent:
			hurried = true
		case <-ctx.Done():
			return false
		}
	}
}

// give gives n back.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	close(r.changed)
	r.changed = make(chan struct{})
}

// hosts limits how many requests each host gets at a time.
type hosts struct {
	limit int

	mu    sync.Mutex
	rooms map[string]*hostRoom
}

// hostRoom belongs to a host that has users. It is forgotten with the last of them.
type hostRoom struct {
	*room
	users int
}

// enter waits until the host may get another request. The returned function must be called after
// the request. It is nil if ctx ends first.
func (h *hosts) enter(ctx context.Context, urgent <-chan struct{}, host string) (leave func()) {
	h.mu.Lock()
	r := h.rooms[host]
	if r == nil {
		r = &hostRoom{room: newRoom(int64(h.limit))}
		h.rooms[host] = r
	}
	r.users++
	h.mu.Unlock()
	if !r.take(ctx, urgent, 1) {
		h.unuse(host, r)
		return nil
	}
	return func() {
		r.give(1)
		h.unuse(host, r)
	}
}

func (h *hosts) unuse(host string, r *hostRoom) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(h.rooms, host)
	}
}
