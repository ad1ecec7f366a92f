package fleet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// roster is the job's slots with their workers, and what is known about their devices. Slots
// may join and leave while the job runs; a number is never used again. Its lock also guards
// the ledger and the suspects: a record that moves from one to the other counts once.
type roster struct {
	registry *gpu.Registry // of the slots' devices
	handBack time.Duration // how long a paused worker keeps its chunk
	oneByOne bool          // the kernel is concurrent: workers count the records that it computes

	mu          sync.Mutex
	members     []*member               // by slot number
	retired     map[string]*fault.Error // why devices were lost, by name
	unsound     map[string]bool         // devices that compute nothing correct before they are reset
	opened      time.Time               // when the first worker's kernel was ready; zero if none was
	last        *fault.Error            // why the last worker was lost
	unusable    *fault.Error            // why the last worker that did not lose its device was lost
	paceChanged chan struct{}           // closed and replaced when a slot's pace changes
}

func newRoster(registry *gpu.Registry, handBack time.Duration, oneByOne bool) *roster {
	return &roster{
		registry: registry, handBack: handBack, oneByOne: oneByOne,
		retired: make(map[string]*fault.Error), unsound: make(map[string]bool), paceChanged: make(chan struct{}),
	}
}

// join adds a slot, which has a slot in the registry, and gives it the next number.
func (r *roster) join(slot event.Slot) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot.Number = len(r.members)
	m := &member{roster: r, mu: &r.mu, slot: slot, pace: 1}
	m.account.oneByOne, m.account.report = r.oneByOne, event.WorkerReport{Slot: slot.Number, Device: slot.Name}
	r.members = append(r.members, m)
	return m
}

// freeSlot returns a retired worker's slot to the registry; a failed device loses all
// its slots. The caller must hold r.mu.
func (r *roster) freeSlot(m *member, failed bool) {
	if failed {
		r.registry.Fail(m.slot.Key())
		for _, other := range r.members {
			if other.slot.SharesDevice(m.slot) {
				other.freed = true
			}
		}
		return
	}
	if !m.freed {
		m.freed = true
		r.registry.Release(m.slot.Key())
	}
}

// regainSlot reacquires the slot of a worker that came back: opening its kernel was the
// probe that its device passed. The caller must hold r.mu.
func (r *roster) regainSlot(m *member) {
	if m.freed {
		r.registry.Recover(m.slot.Key())
		_, taken := r.registry.Acquire(m.slot.Key())
		m.freed = !taken
	}
}

// retire records that a device was lost and ends its workers: their slots see them exit
// and find the device retired.
func (r *roster) retire(device gpu.Device, why *fault.Error) {
	name := device.String()
	r.mu.Lock()
	known := r.retired[name] != nil
	r.retired[name] = why
	r.mu.Unlock()
	if known {
		return
	}
	for _, w := range r.workers(on(device)) {
		w.Abandon()
	}
}

// setUnsound records that a device needs a reset, or that it had one.
func (r *roster) setUnsound(device gpu.Device, unsound bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsound[device.String()] = unsound
}

// openedAt returns when the first worker's kernel was ready; zero if none was.
func (r *roster) openedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// exhausted returns why no slot is left to do the remaining work.
func (r *roster) exhausted() *fault.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.last == nil:
		return fault.NoDeviceLeft.New("no device is left")
	case r.opened.IsZero() && r.unusable != nil:
		return fault.KernelFails.New("the kernel could not be opened on any device: %w", r.unusable).WithDetail(r.unusable.Detail)
	}
	return fault.NoDeviceLeft.New("no device is left; the last one failed with: %s", r.last.Message).WithDetail(r.last.Detail)
}

// each calls use with every slot.
func (r *roster) each(use func(*member)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		use(m)
	}
}

// workers returns the running workers of the slots that match.
func (r *roster) workers(wanted func(*member) bool) (list []*process.Worker) {
	r.each(func(m *member) {
		if m.worker != nil && wanted(m) {
			list = append(list, m.worker)
		}
	})
	return list
}

// everyone matches all slots, on those that use a device, computing those that have a chunk.
func everyone(*member) bool { return true }

func on(device gpu.Device) func(*member) bool {
	return func(m *member) bool { return slices.ContainsFunc(m.slot.Devices, device.Is) }
}

func computing(m *member) bool { return m.load.size > 0 }

// addMemory records how much memory a slot's framework holds and returns the sum over all
// slots of its device. Models that span several GPUs are not counted: their memory cannot
// be attributed to one.
func (r *roster) addMemory(slot event.Slot, memory wire.FrameworkMemory) gpu.FrameworkMemory {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[slot.Number].memory = memory
	total := gpu.FrameworkMemory{Library: memory.Library}
	for _, m := range r.members {
		if len(m.slot.Devices) == 1 && m.slot.SharesDevice(slot) {
			total.Allocated += m.memory.Allocated
			total.Cached += m.memory.Cached
		}
	}
	return total
}

// stuck returns the processes that cannot be killed and still exist.
func (r *roster) stuck() (list []proc.Stuck) {
	r.each(func(m *member) {
		for _, s := range m.stuck {
			if s.Lives() && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
	})
	return list
}

// setPaces sets the workers' pace by the paces of their devices.
func (r *roster) setPaces(paces map[string]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for _, m := range r.members {
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
			m.sendPace()
		}
	}
	if changed {
		close(r.paceChanged)
		r.paceChanged = make(chan struct{})
	}
}

// setSharing notifies workers whether added workers share their device's memory.
func (r *roster) setSharing(of func(event.Slot) bool, added bool) {
	r.each(func(m *member) {
		if of(m.slot) && m.sharing != added {
			m.sharing = added
			if m.worker != nil {
				m.sendSharing()
			}
		}
	})
}

// work returns what the slots that match have done.
func (r *roster) work(of func(event.Slot) bool) (w scaler.Work) {
	r.each(func(m *member) {
		if of(m.slot) {
			m.addTo(&w)
		}
	})
	return w
}

// notifyEnd notifies every worker, once, that the job is nearing its end.
func (r *roster) notifyEnd() {
	r.each(func(m *member) {
		if m.worker != nil && !m.notified {
			m.notified = true
			m.worker.Send(wire.Message{Draining: true})
		}
	})
}

// endSlowest asks the worker that would finish last to end its chunk at the next batch
// boundary, or after the window that it has begun. The part it has not started comes back at
// once and is shared.
func (r *roster) endSlowest(batch int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.slowest(batch); m != nil {
		m.endAsked = true
		m.worker.Send(wire.Message{Stop: &wire.Stop{Share: true}})
	}
}

// slowest returns the worker that would finish last, nil if none has much left. The caller must hold r.mu.
func (r *roster) slowest(batch int64) (slowest *member) {
	longest := minRemaining
	for _, m := range r.members {
		if m.worker == nil || !computing(m) || m.ending {
			continue
		}
		if m.endAsked {
			return nil // one at a time: what it gives back may be enough
		}
		if left := m.timeLeft(time.Now(), batch); left > longest {
			slowest, longest = m, left
		}
	}
	return slowest
}

// speeds returns the measured speed of a slot and of the idle slots, in records per
// second. A slot without measurements counts as being as fast as this one.
func (r *roster) speeds(m *member, idle []int, batch int64) (own float64, others []float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var more int64
	var took time.Duration
	if computing(m) { // its chunk is not booked yet; count at least one batch
		more, took = max(m.load.done, batch), time.Since(m.since)
	}
	own = max(m.account.speed(more, took), 1e-9)
	for _, number := range idle {
		others = append(others, cmp.Or(r.members[number].account.speed(0, 0), own))
	}
	return own, others
}
