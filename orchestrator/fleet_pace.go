package orchestrator

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// setPaces sets the workers' pace by the paces of their devices.
func (f *fleet) setPaces(paces map[string]float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := false
	for _, m := range f.members {
		share := 1.0
		for _, device := range m.slot.Devices {
			if pace, known := paces[device.String()]; known {
				share = min(share, pace)
			}
		}
		if m.pace == share {
			continue
		}
		m.pace, changed = share, true
		if m.worker != nil {
			m.worker.setPace(share, f.handBack)
		}
	}
	if changed {
		close(f.paceChanged)
		f.paceChanged = make(chan struct{})
	}
}

// paused reports whether a slot's device must pause. changed is closed when a pace
// changes.
func (f *fleet) paused(slot Slot) (paused bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[slot.Number].pace == 0, f.paceChanged
}

// awaitPace waits as long as a slot's device must pause and work remains.
func (f *fleet) awaitPace(ctx context.Context, slot Slot, done <-chan struct{}) {
	for {
		paused, changed := f.paused(slot)
		if !paused {
			return
		}
		select {
		case <-changed:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// setPace sets the share of time in which the worker may compute.
func (w *workerProcess) setPace(share float64, handBack time.Duration) {
	_ = w.conn.Send(wire.Message{Pace: &wire.Pace{Share: share, HandBack: handBack}})
}
