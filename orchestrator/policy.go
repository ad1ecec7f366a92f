package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// action is the reaction to a lost worker.
type action int

const (
	restart   action = iota // start another worker for the slot; requeue the chunk
	retire                  // start no other worker for the slot; requeue the chunk
	giveUpJob               // stop the whole job
	leave                   // the job is already stopping
)

const (
	// lossLimit workers may be lost within lossWindow before a slot is retired: a
	// device that fails this often is no help.
	lossLimit  = 5
	lossWindow = 10 * time.Minute
	// openLimit is how often a kernel that has never opened on a slot is tried: twice,
	// since a start can fail by chance.
	openLimit = 2

	firstBackOff = 100 * time.Millisecond
	maxBackOff   = 10 * time.Second

	// A lost device is retried after firstProbe, then at doubling intervals up to
	// maxProbe.
	firstProbe = 30 * time.Second
	maxProbe   = 10 * time.Minute
)

// probeAfter returns how long a device is left alone before it is retried.
func probeAfter(first time.Duration, probes int) time.Duration {
	return min(maxProbe, first<<min(probes, 10))
}

// budget counts the workers that a slot has lost recently.
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

// backOff returns how long to wait before starting the next worker.
func (b *budget) backOff() time.Duration {
	return min(maxBackOff, firstBackOff<<min(len(b.losses), 16))
}

// doubted describes a chunk that failed with what only looks like a lost device: the
// text may come from a record.
type doubted struct {
	confirmed bool // the driver reports the device as lost
	devices   int  // number of devices on which the chunk failed this way, including this one
	again     bool // it failed this way on this device before
	last      bool // no other device is left to try
}

// suspicion is the conclusion.
type suspicion int

const (
	tryElsewhere suspicion = iota // another device, if there is one, gets the chunk next
	deviceLost
	recordsFault
)

// decide blames the chunk if a second device "fails" the same way, or if this device
// does so again in a fresh process and there is no other.
func (d doubted) decide() suspicion {
	switch {
	case d.confirmed:
		return deviceLost
	case d.devices >= 2, d.again && d.last:
		return recordsFault
	}
	return tryElsewhere
}

// decide returns the reaction to a worker that was lost by a failure of this kind.
// opened: the slot has had an open kernel before.
func decide(kind fault.Kind, opened bool, b *budget, now time.Time) action {
	switch kind {
	case fault.Canceled:
		return leave
	case fault.Incompatible:
		if !opened { // otherwise it was killed, or starved, while starting
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
