package orchestrator

import "sync"

// emitter passes events to the embedding program, one at a time.
type emitter struct {
	to       func(Event) // nil: no listener
	mu       sync.Mutex
	finished bool // Finished, the last event, was emitted
}

func (e *emitter) emit(event Event) {
	if e.to == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished {
		return
	}
	_, e.finished = event.(Finished)
	e.to(event)
}

// notice shows the user a line.
func (e *emitter) notice(text string) { e.emit(Notice{Text: text}) }

// alarm shows one that even a quiet display must not hide.
func (e *emitter) alarm(text string) { e.emit(Notice{Text: text, Alarm: true}) }
