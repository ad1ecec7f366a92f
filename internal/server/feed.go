package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

const (
	// keptEvents is how many events of each of the two lists can be replayed.
	keptEvents = 1000
	// flushInterval is how often listeners get what is new.
	flushInterval = time.Second
	// beatInterval is how often a listener hears something at least, so that both sides
	// notice a broken connection.
	beatInterval = 15 * time.Second
	// maxListeners is how many listeners may follow a job at a time.
	maxListeners = 512
	// flushesAhead is how many flushes a listener may lag behind before it is dropped.
	flushesAhead = 8
)

// Feed distributes a job's events as server-sent events. Listeners get them once a second,
// encoded once for all of them; of progress and samples they get only the latest of each
// worker and device. Event never blocks: a listener that is too slow is dropped, and can
// reconnect with the id of the last event it got.
type Feed struct {
	epoch string // identifies this run in ids

	mu      sync.Mutex
	last    uint64 // the number of the last event
	notable []entry
	chunks  []entry // frequent and less interesting; they do not displace the others
	latest  map[string]entry

	// flushing is held while listeners are served or added, so that each gets every event
	// once. It is taken before mu.
	flushing  sync.Mutex
	sent      uint64
	beat      time.Time
	listeners map[chan []byte]bool
	running   bool // run is
	closed    bool
	done      chan struct{} // closed with it
}

// entry is an event with its number. Events are encoded only for listeners.
type entry struct {
	number uint64
	time   time.Time
	event  orchestrator.Event
}

// keep adds an entry to the last ones.
func keep(entries []entry, e entry) []entry {
	if len(entries) >= keptEvents {
		entries = slices.Delete(entries, 0, keptEvents/10) // some at once: they move
	}
	return append(entries, e)
}

// NewFeed returns a feed for one run of a job; id identifies the run.
func NewFeed(id string) *Feed {
	return &Feed{epoch: id, latest: make(map[string]entry), listeners: make(map[chan []byte]bool), done: make(chan struct{})}
}

// Event adds an event.
func (f *Feed) Event(event orchestrator.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	e := entry{f.last, time.Now(), event}
	switch event := event.(type) {
	case orchestrator.Progress:
		f.latest["progress "+strconv.Itoa(event.Slot)] = e
	case orchestrator.DeviceSample:
		f.latest["sample "+event.Device] = e
	case orchestrator.ChunkStarted, orchestrator.ChunkDone:
		f.chunks = keep(f.chunks, e)
	default:
		f.notable = keep(f.notable, e)
	}
}

// since returns the kept events after a number, and the number of the last event.
func (f *Feed) since(number uint64) ([]entry, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.AppendSeq(slices.Concat(f.notable, f.chunks), maps.Values(f.latest))
	all = slices.DeleteFunc(all, func(e entry) bool { return e.number <= number })
	slices.SortFunc(all, func(a, b entry) int { return int(int64(a.number) - int64(b.number)) })
	return all, f.last
}

// encode returns events as a listener gets them.
func (f *Feed) encode(entries []entry) []byte {
	var out []byte
	for _, e := range entries {
		if data := view.EncodeEvent(e.event, e.time); data != nil {
			out = fmt.Appendf(out, "id: %s-%d\ndata: %s\n\n", f.epoch, e.number, data)
		}
	}
	return out
}

// Listen returns the events after id ("" or the id of another run: all that are kept), a
// channel of what follows, closed at the end, and a function to stop listening; false if
// there are too many listeners or the job has ended.
func (f *Feed) Listen(id string) (replay []byte, more <-chan []byte, leave func(), ok bool) {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	if len(f.listeners) >= maxListeners || f.closed {
		return nil, nil, nil, false
	}
	if !f.running {
		f.running = true
		_, f.sent = f.since(0)
		go f.run()
	}
	entries, _ := f.since(f.number(id))
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.number > f.sent })
	listener := make(chan []byte, flushesAhead)
	f.listeners[listener] = true
	return f.encode(entries), listener, func() {
		f.flushing.Lock()
		defer f.flushing.Unlock()
		f.drop(listener)
	}, true
}

// number parses an id; 0 for one of another run.
func (f *Feed) number(id string) uint64 {
	digits, ours := strings.CutPrefix(id, f.epoch+"-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ours || err != nil {
		return 0
	}
	return n
}

// run serves the listeners until there are none.
func (f *Feed) run() {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for more := true; more; {
		select {
		case <-ticker.C:
			more = f.flush()
		case <-f.done:
			return
		}
	}
}

// flush sends what is new; false if the client has gone.
func (f *Feed) flush() bool {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	if len(f.listeners) == 0 {
		f.running = false
		return false
	}
	entries, last := f.since(f.sent)
	f.sent = last
	data := f.encode(entries)
	switch {
	case len(data) > 0:
	case time.Since(f.beat) >= beatInterval:
		data = []byte(": \n\n")
	default:
		return true
	}
	f.beat = time.Now()
	for listener := range f.listeners {
		select {
		case listener <- data:
		default:
			f.drop(listener)
		}
	}
	return true
}

// drop closes a listener at most once. The caller must hold flushing.
func (f *Feed) drop(listener chan []byte) {
	if f.listeners[listener] {
		delete(f.listeners, listener)
		close(listener)
	}
}

// Close sends the last events and ends all listeners.
func (f *Feed) Close() {
	f.flush()
	f.flushing.Lock()
	defer f.flushing.Unlock()
	if !f.closed {
		f.closed = true
		close(f.done)
	}
	for listener := range f.listeners {
		f.drop(listener)
	}
}
