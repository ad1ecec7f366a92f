package worker

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// pacer is how fast this worker may compute: the orchestrator says so, as a share
// of the time. What is left of the time after a batch, the device rests.
type pacer struct {
	mu    sync.Mutex
	pace  wire.Pace
	since time.Time // of the pace

	// wake says that a computing loop which waits should look again.
	wake chan struct{}
}

func newPacer() *pacer { return &pacer{pace: wire.Pace{Share: 1}, wake: make(chan struct{}, 1)} }

func (p *pacer) set(pace wire.Pace) {
	p.mu.Lock()
	p.pace, p.since = pace, time.Now()
	p.mu.Unlock()
	p.nudge()
}

// nudge wakes a loop that waits.
func (p *pacer) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// slowed reports whether the device must rest between batches.
func (p *pacer) slowed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace.Share < 1
}

// rest is how long the device rests after a batch that took so long.
func (p *pacer) rest(took time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pace.Share <= 0 || p.pace.Share >= 1 {
		return 0
	}
	return time.Duration(float64(took) * (1/p.pace.Share - 1))
}

// paused reports whether nothing may be computed, and when the rest of the chunk
// is to be given back for that.
func (p *pacer) paused() (handBack time.Time, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since.Add(p.pace.HandBack), p.pace.Share <= 0
}

// mustGive reports whether a pause has lasted so long that the rest of the chunk is
// to be given back.
func (p *pacer) mustGive() bool {
	handBack, paused := p.paused()
	return paused && !time.Now().Before(handBack)
}

// breather is how long the next batch must wait: not at all, until the device has
// rested, or, in a pause, until the chunk is given back.
func (c *computing) breather() time.Duration {
	if handBack, paused := c.worker.pace.paused(); paused {
		return max(time.Millisecond, time.Until(handBack))
	}
	return time.Until(c.restUntil)
}
