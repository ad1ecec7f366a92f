package fetch

import (
	"context"
	"sync"
)

// hosts limits how many requests each host gets at a time.
type hosts struct {
	limit int

	mu    sync.Mutex
	slots map[string]*hostSlots
}

// hostSlots belongs to a host that has users. It is forgotten with the last of them.
type hostSlots struct {
	taken chan struct{}
	users int
}

func newHosts(limit int) *hosts { return &hosts{limit: limit, slots: make(map[string]*hostSlots)} }

// enter waits until the host may get another request, or until urgent is closed: fetches
// that wait for memory keep their connections, and a caller may wait for this one. The
// returned function must be called after the request. It is nil if ctx ends first.
func (h *hosts) enter(ctx context.Context, urgent <-chan struct{}, host string) (leave func()) {
	slots := h.use(host)
	done := func() { h.unuse(host, slots) }
	select {
	case slots.taken <- struct{}{}:
		return func() {
			<-slots.taken
			done()
		}
	default:
	}
	select {
	case slots.taken <- struct{}{}:
		return func() {
			<-slots.taken
			done()
		}
	case <-urgent:
		return done
	case <-ctx.Done():
		done()
		return nil
	}
}

func (h *hosts) use(host string) *hostSlots {
	h.mu.Lock()
	defer h.mu.Unlock()
	slots := h.slots[host]
	if slots == nil {
		slots = &hostSlots{taken: make(chan struct{}, h.limit)}
		h.slots[host] = slots
	}
	slots.users++
	return slots
}

func (h *hosts) unuse(host string, slots *hostSlots) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slots.users--; slots.users == 0 {
		delete(h.slots, host)
	}
}
