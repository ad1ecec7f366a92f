package fleet

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// setPaces sets the workers' pace by the paces of their devices.
func (f *roster) setPaces(paces map[string]float64) {
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
			m.sendPace(f.handBack)
		}
	}
	if changed {
		close(f.paceChanged)
		f.paceChanged = make(chan struct{})
	}
}

// paused reports whether a slot's device must pause. changed is closed when a pace
// changes.
func (f *roster) paused(slot event.Slot) (paused bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[slot.Number].pace == 0, f.paceChanged
}

// awaitPace waits as long as a slot's device must pause and work remains.
func (f *roster) awaitPace(ctx context.Context, slot event.Slot, done <-chan struct{}) {
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

// sendPace sends the worker the share of time in which it may compute.
func (m *member) sendPace(handBack time.Duration) {
	m.worker.Send(wire.Message{Pace: &wire.Pace{Share: m.pace, HandBack: handBack}})
}
