package fleet

import (
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// A record that fails on one GPU and succeeds on another is not to blame, the GPU is. While a
// GPU is suspicious, as package judge decides, its segments with failed records are suspended
// instead of committed, and another device computes one of those records, a probe. If it fails
// there, too, the segments are committed. If it succeeds, other devices compute them again,
// and a sick GPU is retired for the job.
//
// The CPU devices of a host are one machine: none of them is ever suspicious. Neither is the
// last device of a job.

// maxSuspended limits the suspended segments of a device. It then gets no work but probes.
const maxSuspended = 4

// suspects is the evidence about the job's devices, by key.
type suspects struct {
	mu      sync.Mutex
	devices map[string]*suspect
}

// suspect is the evidence about one device.
type suspect struct {
	booked  judge.Outcomes         // of finished parts
	live    map[int]judge.Outcomes // of parts in progress, by slot
	proven  int64                  // failures that the records caused
	probing bool                   // another device computes one of its records
	held    []result
	sick    bool
}

// result is a finished segment of a slot.
type result struct {
	task task // its chunk is what the segment was computed from
	slot event.Slot
	done wire.Done
}

// probe makes a task compute a record of a suspicious device. Its result is not committed.
type probe struct {
	device string
	fault  *fault.Error // of the record there
}

// ruling is what the result of a probe means.
type ruling int

const (
	rulingOpen     ruling = iota // a further device must compute the record
	recordsFail                  // the suspended segments are committed
	recordsSucceed               // other devices compute them again
	deviceSick                   // and the device is retired
	rulingUnneeded               // the device was retired meanwhile
)

func newSuspects() *suspects { return &suspects{devices: make(map[string]*suspect)} }

// of returns the evidence about a device. The caller must hold x.mu.
func (x *suspects) of(device string) *suspect {
	d := x.devices[device]
	if d == nil {
		d = &suspect{live: make(map[int]judge.Outcomes)}
		x.devices[device] = d
	}
	return d
}

// outcomes sums up what became of a device's records. The caller must hold x.mu.
func (x *suspects) outcomes(device string) judge.Outcomes {
	d := x.of(device)
	all := d.booked
	for _, live := range d.live {
		all = all.Plus(live)
	}
	all.Failed = max(0, all.Failed-d.proven)
	return all
}

func (x *suspects) outcomesOf(devices []string) []judge.Outcomes {
	list := make([]judge.Outcomes, len(devices))
	for i, device := range devices {
		list[i] = x.outcomes(device)
	}
	return list
}

// progress records how far the parts of a slot have come.
func (x *suspects) progress(slot event.Slot, live judge.Outcomes) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of(slot.Key()).live[slot.Number] = live
}

// book adds the outcomes of a finished part; live is the sum of the slot's other parts.
func (x *suspects) book(slot event.Slot, done, live judge.Outcomes) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(slot.Key())
	d.booked, d.live[slot.Number] = d.booked.Plus(done), live
}

// begin reports whether one of the others must compute a record of a device, and notes that
// it does.
func (x *suspects) begin(device string, others []string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(device)
	if d.probing || d.sick || !x.outcomes(device).Suspicious(x.outcomesOf(others)) {
		return false
	}
	d.probing = true
	return true
}

// suspend keeps a segment if a probe will decide on its device. full: the device has as many
// as it may have.
func (x *suspects) suspend(device string, s result) (kept, full bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(device)
	if !d.probing {
		return false, false
	}
	d.held = append(d.held, s)
	return true, len(d.held) >= maxSuspended
}

// rule decides what the result of a probe means, which was computed on a device. others are all
// devices but the suspicious one. last: no further device can try the record. It returns the
// segments that were suspended.
func (x *suspects) rule(device, on string, failed bool, others []string, last bool) (ruling, []result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of(device)
	switch {
	case d.sick:
		return rulingUnneeded, nil
	case failed && !last && !x.outcomes(on).Trusted(x.outcomesOf(others)):
		return rulingOpen, nil
	}
	held := d.held
	d.held, d.probing = nil, false
	own := x.outcomes(device)
	switch {
	case failed:
		d.proven += own.Failed
		return recordsFail, held
	case own.Sick(x.outcomesOf(others)):
		d.sick = true
		return deviceSick, held
	}
	return recordsSucceed, held
}

// takeAll returns the suspended segments of all devices.
func (x *suspects) takeAll() (all []result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.devices {
		all, d.held = append(all, d.held...), nil
	}
	return all
}

// isSick reports whether a device was retired because records failed on it that succeed
// elsewhere.
func (x *suspects) isSick(device string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of(device).sick
}

// failures returns how many records failed on a device.
func (x *suspects) failures(device string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.outcomes(device).Failed
}

// best returns the device on which most records have succeeded, "" if none has.
func (x *suspects) best(devices []string) (best string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var most int64
	for _, device := range devices {
		if good := x.outcomes(device).Good; good > most {
			best, most = device, good
		}
	}
	return best
}

// outcomesOf returns what the kernel has made of counted records, of which faulty failed in it.
func outcomesOf(counts chunk.Counts, faulty int64) judge.Outcomes {
	return judge.Outcomes{Good: counts.Succeeded + counts.Dropped, Failed: faulty}
}
