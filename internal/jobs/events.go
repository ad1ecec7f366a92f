package jobs

import (
	"net/http"
	"sync"
	"time"
)

const (
	// maxListeners is how many listeners may follow a job at a time.
	maxListeners = 16
	// eventsAhead is how many events a listener may lag behind before it is dropped.
	eventsAhead = 256
)

// Events broadcasts lines to all listeners. Each Write is one line. It never blocks: a
// listener that is too slow is dropped.
type Events struct {
	mu        sync.Mutex
	listeners map[chan []byte]bool
	closed    bool
}

// Write implements io.Writer.
func (e *Events) Write(line []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var copied []byte
	for listener := range e.listeners {
		if copied == nil {
			copied = append(copied, line...)
		}
		select {
		case listener <- copied:
		default:
			e.drop(listener)
		}
	}
	return len(line), nil
}

// Close drops all listeners: the job has ended.
func (e *Events) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for listener := range e.listeners {
		e.drop(listener)
	}
}

// listen returns a channel of lines, closed at the end, and a function to stop listening;
// false if there are too many listeners or the job has ended.
func (e *Events) listen() (lines chan []byte, leave func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.listeners) >= maxListeners || e.closed {
		return nil, nil, false
	}
	if e.listeners == nil {
		e.listeners = make(map[chan []byte]bool)
	}
	lines = make(chan []byte, eventsAhead)
	e.listeners[lines] = true
	return lines, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.drop(lines)
	}, true
}

// drop closes a listener at most once. The caller must hold the lock.
func (e *Events) drop(listener chan []byte) {
	if e.listeners[listener] {
		delete(e.listeners, listener)
		close(listener)
	}
}

// stream serves GET /v1/events.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	lines, leave, ok := h.events.listen()
	if !ok {
		http.Error(w, "too many listeners, or the job has ended", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return
			}
			_ = control.SetWriteDeadline(time.Now().Add(answerTime))
			if _, err := w.Write(line); err != nil || control.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
