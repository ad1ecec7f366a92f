package judge

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// Reaction is what to do about a lost worker.
type Reaction int

// The reactions.
const (
	Restart   Reaction = iota // start another worker for the slot; requeue the chunk
	Retire                    // start no other worker for the slot; requeue the chunk
	GiveUpJob                 // stop the whole job
	Leave                     // the job is already stopping
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

	// maxProbe is how long a lost device is left alone at most.
	maxProbe = 10 * time.Minute
)

// ProbeAfter returns how long a lost device is left alone before it is retried: doubling
// intervals.
func ProbeAfter(first time.Duration, probes int) time.Duration {
	return min(maxProbe, first<<min(probes, 10))
}

// Losses are the workers that a slot has lost recently.
type Losses []time.Time

// React returns the reaction to a worker that was lost by a failure of this kind, and counts
// it. opened: the slot has had an open kernel before.
func (l *Losses) React(kind fault.Kind, opened bool, now time.Time) Reaction {
	switch kind {
	case fault.Canceled:
		return Leave
	case fault.Incompatible:
		if !opened { // otherwise it was killed, or starved, while starting
			return GiveUpJob
		}
	case fault.Usage, fault.Storage, fault.Conflict:
		return GiveUpJob
	case fault.Device, fault.NoDevice:
		return Retire
	}
	*l = append(slices.DeleteFunc(*l, func(at time.Time) bool { return now.Sub(at) >= lossWindow }), now)
	if len(*l) >= lossLimit || !opened && len(*l) >= openLimit {
		return Retire
	}
	return Restart
}

// BackOff returns how long to wait before starting the next worker.
func (l Losses) BackOff() time.Duration {
	return min(maxBackOff, firstBackOff<<min(len(l), 16))
}

// Doubt describes a chunk that failed with what only looks like a lost device: the
// text may come from a record.
type Doubt struct {
	Confirmed bool // the driver reports the device as lost
	Devices   int  // number of devices on which the chunk failed this way, including this one
	Again     bool // it failed this way on this device before
	Last      bool // no other device is left to try
}

// Cause is the conclusion.
type Cause int

// The causes.
const (
	Unclear Cause = iota // another device, if there is one, gets the chunk next
	DeviceLost
	RecordsFault
)

// Cause blames the chunk if a second device "fails" the same way, or if this device
// does so again in a fresh process and there is no other.
func (d Doubt) Cause() Cause {
	switch {
	case d.Confirmed:
		return DeviceLost
	case d.Devices >= 2, d.Again && d.Last:
		return RecordsFault
	}
	return Unclear
}
