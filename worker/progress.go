package worker

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/histogram"
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
func (p *partWriter) report(latency *histogram.Histogram) {
	s, w := &p.progress, p.worker
	s.at, s.told = time.Now(), s.computed
	w.send(wire.Message{Progress: &wire.Progress{
		Chunk: p.assign.ID, Counts: s.written, Faulty: p.suspects.faulty(), Ahead: max(0, s.computed-s.written.Records),
		Computed: w.computed.Load(), Batches: w.batches.Load(), Awaits: w.awaited(), Busy: time.Duration(w.busy.Load()), Tuning: w.sizes.tuning(),
		Memory: w.host.memory(), Latency: latency,
	}})
}

// wrote records that the writer has written a group.
func (p *partWriter) wrote() {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.progress.written = p.part.Counts()
	if now := time.Now(); now.Sub(p.progress.wroteAt) >= progressInterval {
		p.progress.wroteAt = now
		p.report(p.takeLatency())
	}
}

// computed records that n further records are computed, perhaps not yet written. With 0 it reports
// what was computed too soon after the last report: perhaps nothing follows for long.
func (p *partWriter) computed(n int) {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.progress.computed += int64(n)
	if p.progress.told != p.progress.computed && time.Since(p.progress.at) >= progressInterval {
		p.report(nil)
	}
}

// countBatch counts a batch that the kernel has computed.
func (p *partWriter) countBatch() {
	p.stats.Batches++
	p.worker.batches.Add(1)
}

// addBusy counts time in which the kernel had work.
func (p *partWriter) addBusy(took time.Duration) {
	p.stats.Busy += took
	p.worker.busy.Add(int64(took))
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
	p.report(nil)
}
