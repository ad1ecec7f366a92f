package worker

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// progressInterval is how often to report a chunk's progress: as often as the eye can
// follow.
const progressInterval = 100 * time.Millisecond

// progress is what a chunk's progress was last reported as. The writer reports what it has
// written; the goroutine that computes reports what is computed: a window is written much
// later.
type progress struct {
	mu       sync.Mutex
	at       time.Time // of the last report
	wroteAt  time.Time // of the last one by the writer
	written  chunk.Counts
	computed int64 // records of windows, or with an answer
	told     int64 // of those, in the last report
}

// report sends the progress. The caller must hold the lock.
func (p *partWriter) report(message wire.Progress) {
	s := &p.progress
	s.at, s.told = time.Now(), s.computed
	message.Chunk, message.Counts, message.Ahead = p.id, s.written, max(0, s.computed-s.written.Records)
	message.Memory, message.Busy, message.Tuning = p.worker.host.memory(), time.Duration(p.worker.busy.Load()), p.worker.sizes.tuning()
	message.Faulty = p.suspects.faulty()
	message.Computed, message.Awaits = p.worker.computed.Load(), p.worker.awaited()
	p.worker.send(wire.Message{Progress: &message})
}

// wrote records that the writer has written a batch or a window.
func (p *partWriter) wrote() {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.progress.written = p.part.Counts()
	if now := time.Now(); now.Sub(p.progress.wroteAt) >= progressInterval {
		p.progress.wroteAt = now
		p.report(wire.Progress{Latency: p.takeLatency()})
	}
}

// computed records that n records of a window are computed.
func (p *partWriter) computed(n int) {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.progress.computed += int64(n)
	if time.Since(p.progress.at) >= progressInterval {
		p.report(wire.Progress{})
	}
}

// catchUp reports what was computed too soon after the last report: perhaps nothing follows
// for long.
func (p *partWriter) catchUp() {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.progress.told != p.progress.computed && time.Since(p.progress.at) >= progressInterval {
		p.report(wire.Progress{})
	}
}

// fetchShown is how long the kernel must have waited for files before that is reported.
const fetchShown = 500 * time.Millisecond

// awaits reports what the kernel waits for, or that it no longer does.
func (p *partWriter) awaits(what wire.Awaits) {
	if p.worker.awaited() == what {
		return
	}
	p.worker.awaits.Store(what)
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.report(wire.Progress{})
}
