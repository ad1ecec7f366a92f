package worker

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// pacer limits how fast this worker computes. The orchestrator sets the pace as a share of
// the time; the device rests for the remainder after each batch.
type pacer struct {
	mu    sync.Mutex
	pace  wire.Pace
	since time.Time // when the pace was set

	// wake tells a waiting compute loop to check again.
	wake chan struct{}
}

func newPacer() *pacer { return &pacer{pace: wire.Pace{Share: 1}, wake: make(chan struct{}, 1)} }

func (p *pacer) set(pace wire.Pace) {
	p.mu.Lock()
	p.pace, p.since = pace, time.Now()
	p.mu.Unlock()
	p.nudge()
}

// nudge wakes a waiting compute loop.
func (p *pacer) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// share returns the share of the time, or of the records in flight, that is allowed.
func (p *pacer) share() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace.Share
}

// rest returns how long the device must rest after a batch of the given duration.
func (p *pacer) rest(took time.Duration) time.Duration {
	share := p.share()
	if share <= 0 {
		return 0
	}
	return time.Duration(float64(took) * (1/share - 1))
}

// paused reports whether computing is paused, and when the worker must hand back the rest
// of the chunk.
func (p *pacer) paused() (handBack time.Time, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since.Add(p.pace.HandBack), p.pace.Share <= 0
}

// mustHandBack reports whether a pause has lasted long enough to hand back the rest of the
// chunk.
func (p *pacer) mustHandBack() bool {
	handBack, paused := p.paused()
	return paused && !time.Now().Before(handBack)
}
