package worker

import (
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// pacer limits how fast this worker computes. The orchestrator sets the pace as a share of
// the time; the device rests for the remainder after each batch.
type pacer struct {
	pace atomic.Pointer[pace]

	// wake tells a waiting compute loop to check again.
	wake chan struct{}
}

// pace is what the orchestrator has set, and when.
type pace struct {
	wire.Pace
	since time.Time
}

func newPacer() *pacer {
	p := &pacer{wake: make(chan struct{}, 1)}
	p.pace.Store(&pace{Pace: wire.Pace{Share: 1}})
	return p
}

func (p *pacer) set(to wire.Pace) {
	p.pace.Store(&pace{to, time.Now()})
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
func (p *pacer) share() float64 { return p.pace.Load().Share }

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
	now := p.pace.Load()
	return now.since.Add(now.HandBack), now.Share <= 0
}

// mustHandBack reports whether a pause has lasted long enough to hand back the rest of the
// chunk.
func (p *pacer) mustHandBack() bool {
	handBack, paused := p.paused()
	return paused && !time.Now().Before(handBack)
}
