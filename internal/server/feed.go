package server

import (
	"fmt"
	"maps"
	"net/http"
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
	// flushInterval is how often a listener gets what is new.
	flushInterval = time.Second
	// beatInterval is how often a listener gets something at least, so that both sides
	// notice a broken connection.
	beatInterval = 15 * time.Second
	// maxListeners is how many listeners may follow a job at a time.
	maxListeners = 512
)

// Feed distributes a job's events as server-sent events. Listeners get them once a second; of
// progress and samples they get only the latest of each worker and device. Event never waits for a
// listener: one that reads slowly misses what is no longer kept, and one that does not read loses its
// connection. It can reconnect with the id of the last event it got.
type Feed struct {
	epoch     string        // identifies this run in ids
	listeners chan struct{} // has an entry for each
	done      chan struct{} // closed when the job has ended

	mu      sync.Mutex
	last    uint64 // the number of the last event
	notable []entry
	chunks  []entry // frequent and less interesting; they do not displace the others
	latest  map[string]entry
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
	return &Feed{epoch: id, latest: make(map[string]entry), listeners: make(chan struct{}, maxListeners), done: make(chan struct{})}
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

// since returns the kept events after a number, oldest first.
func (f *Feed) since(number uint64) []entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.AppendSeq(slices.Concat(f.notable, f.chunks), maps.Values(f.latest))
	all = slices.DeleteFunc(all, func(e entry) bool { return e.number <= number })
	slices.SortFunc(all, func(a, b entry) int { return int(int64(a.number) - int64(b.number)) })
	return all
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

// number parses an id; 0 for one of another run.
func (f *Feed) number(id string) uint64 {
	digits, ours := strings.CutPrefix(id, f.epoch+"-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ours || err != nil {
		return 0
	}
	return n
}

// serve sends a client the events after the one that it got last ("" or the id of another run: all that
// are kept), until the job ends.
func (f *Feed) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case f.listeners <- struct{}{}:
		defer func() { <-f.listeners }()
	default:
		fail(w, http.StatusServiceUnavailable, "too many listeners")
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the request is complete
	w.Header().Set("Content-Type", "text/event-stream")
	data, sent, beat := []byte("retry: 1000\n\n"), f.number(r.Header.Get("Last-Event-ID")), time.Now()
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for ended := false; ; {
		entries := f.since(sent)
		if data = append(data, f.encode(entries)...); len(data) == 0 && time.Since(beat) >= beatInterval {
			data = []byte(": \n\n")
		}
		if len(data) > 0 {
			if _, err := w.Write(data); err != nil || control.Flush() != nil {
				return
			}
			data, beat = nil, time.Now()
		}
		if n := len(entries); n > 0 {
			sent = entries[n-1].number
		}
		if ended {
			return
		}
		select {
		case <-ticker.C:
		case <-f.done:
			ended = true // and those that came with it
		case <-r.Context().Done():
			return
		}
	}
}

// Close lets listeners get the last events and ends them; call it once.
func (f *Feed) Close() { close(f.done) }
