package orchestrator

import "time"

// checkpoint ends a chunk when a worker has been at it for so long, but not before
// it has finished a batch of it: one that came sooner would commit nothing, and the
// next one likewise.
type checkpoint struct {
	end   func()
	due   time.Time
	timer *time.Timer // nil until something is done
}

func newCheckpoint(after time.Duration, end func()) *checkpoint {
	return &checkpoint{end: end, due: time.Now().Add(after)}
}

// begun: the worker has finished a batch.
func (c *checkpoint) begun() {
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.due), c.end)
	}
}

func (c *checkpoint) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
