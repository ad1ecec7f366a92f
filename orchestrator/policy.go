package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// action is what a lost worker means.
type action int

const (
	restart   action = iota // another worker for the slot; the chunk goes back
	retire                  // no other worker for the slot; the chunk goes back
	giveUpJob               // the whole job stops
	leave                   // the job is stopping anyway
)

const (
	// lossLimit workers may be lost in lossWindow before a slot is given up: a
	// device that fails so often is no help.
	lossLimit  = 5
	lossWindow = 10 * time.Minute
	// openLimit is how often a kernel that has never opened on a slot is tried:
	// once more, since a start can fail by chance.
	openLimit = 2

	firstBackOff = 100 * time.Millisecond
	maxBackOff   = 10 * time.Second

	// A lost device is tried again after firstProbe, then twice as long, up to
	// maxProbe.
	firstProbe = 30 * time.Second
	maxProbe   = 10 * time.Minute
)

// probeAfter is how long a device is left alone before it is tried again.
func probeAfter(probes int) time.Duration {
	return min(maxProbe, firstProbe<<min(probes, 10))
}

// budget counts the workers that a slot has lost lately.
type budget struct {
	losses []time.Time
}

func (b *budget) charge(now time.Time) int {
	kept := b.losses[:0]
	for _, at := range b.losses {
		if now.Sub(at) < lossWindow {
			kept = append(kept, at)
		}
	}
	b.losses = append(kept, now)
	return len(b.losses)
}

// backOff is how long to wait before the next worker.
func (b *budget) backOff() time.Duration {
	return min(maxBackOff, firstBackOff<<min(len(b.losses), 16))
}

// doubted is a chunk that failed in a way that only reads like a lost device: the text may
// be a record's.
type doubted struct {
	confirmed bool // the driver reports the device as lost
	devices   int  // on which the chunk has failed so, this one included
	again     bool // it has failed so on this one before
	last      bool // no other device is left to try
}

// suspicion is what comes of it.
type suspicion int

const (
	tryElsewhere suspicion = iota // another device, if there is one, has the chunk next
	deviceLost
	recordsFault
)

// decide: a second device that "fails" the same way, or the same in a fresh process where
// there is no other, shows that it is the chunk.
func (d doubted) decide() suspicion {
	switch {
	case d.confirmed:
		return deviceLost
	case d.devices >= 2, d.again && d.last:
		return recordsFault
	}
	return tryElsewhere
}

// decide says what is done about a worker that was lost by a failure of this
// kind. opened: its slot has once had an open kernel.
func decide(kind fault.Kind, opened bool, b *budget, now time.Time) action {
	switch kind {
	case fault.Canceled:
		return leave
	case fault.Incompatible:
		if !opened { // else it was killed, or starved, while it started
			return giveUpJob
		}
	case fault.Usage, fault.Storage, fault.Conflict:
		return giveUpJob
	case fault.Device, fault.NoDevice:
		return retire
	}
	limit := lossLimit
	if !opened {
		limit = openLimit
	}
	if b.charge(now) >= limit {
		return retire
	}
	return restart
}
