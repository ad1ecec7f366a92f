package fleet

import "time"

// checkpoint ends a chunk after a worker has spent a set time on it, but not before the
// worker has finished a batch of it. An earlier end would commit nothing, and so would
// the next.
type checkpoint struct {
	end   func()
	due   time.Time
	timer *time.Timer // nil until a batch is done
}

func newCheckpoint(after time.Duration, end func()) *checkpoint {
	return &checkpoint{end: end, due: time.Now().Add(after)}
}

// batchDone records that the worker has finished a batch.
func (c *checkpoint) batchDone() {
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.due), c.end)
	}
}

func (c *checkpoint) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
