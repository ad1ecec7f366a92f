package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
)

// fleet is the job's slots with their workers, and what is known about their devices.
// Slots may join and leave while the job runs; a number is never used again.
type roster struct {
	registry *gpu.Registry // of the slots' devices
	handBack time.Duration // how long a paused worker keeps its chunk
	oneByOne bool          // the kernel is concurrent: workers count the records that it computes

	mu          sync.Mutex
	members     []*member               // by slot number
	retired     map[string]*fault.Error // why devices were lost, by name
	unsound     map[string]bool         // devices that compute nothing correct before they are reset
	opened      bool                    // some worker's kernel has been ready
	openedAt    time.Time               // when the first was
	last        *fault.Error            // why the last worker was lost
	unusable    *fault.Error            // why the last worker that did not lose its device was lost
	paceChanged chan struct{}           // closed and replaced when a slot's pace changes
}

// member is the state of a slot.
type member struct {
	slot    event.Slot
	worker  *process.Worker
	retired bool    // its worker was lost and is not replaced for now, or it has left
	freed   bool    // it has no slot in the registry
	pace    float64 // the share of time in which it may compute
	memory  wire.FrameworkMemory
	report  event.WorkerReport
	sharing bool // added workers share its device's memory

	bytes       int64         // of the input of its finished segments
	recordBytes float64       // of its current chunk
	batches     int64         // finished
	computed    int64         // records that earlier workers of a concurrent kernel have computed
	repeated    int64         // records of unfinished chunks that were lost with earlier workers
	busy        time.Duration // in which its worker's kernel had work
	busyBefore  time.Duration // the same for earlier workers
	load        time.Duration // how long its kernel took to open
	tuning      bool          // its worker is searching for its batch size
	awaits      event.Awaits  // what its kernel waits for

	size     int64           // of its current chunk; 0 for none
	done     int64           // records of that chunk
	since    time.Time       // when it was assigned
	endAsked bool            // it was asked to end the chunk
	ending   bool            // it has handed back the rest of the chunk
	notified *process.Worker // the worker that was notified that the job is nearing its end
}

func newRoster(registry *gpu.Registry, handBack time.Duration, oneByOne bool) *roster {
	return &roster{
		registry: registry, handBack: handBack, oneByOne: oneByOne,
		retired: make(map[string]*fault.Error), unsound: make(map[string]bool), paceChanged: make(chan struct{}),
	}
}

// join adds a slot, which has a slot in the registry and the next number.
func (f *roster) join(slot event.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, &member{slot: slot, pace: 1, report: event.WorkerReport{Slot: slot.Number, Device: slot.Name}})
}

// leave removes a slot for good. Its slot in the registry has already been released.
func (f *roster) leave(slot event.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.retired, m.freed = true, true
	m.report.Retired = m.report.Retired || f.retired[slot.Key()] != nil
}

// started records that a slot has a worker process.
func (f *roster) started(slot event.Slot, w *process.Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.worker = w
	if m.pace < 1 {
		m.sendPace(f.handBack)
	}
	if m.sharing {
		m.sendSharing()
	}
}

// ready records that a slot has an open kernel and its device works.
func (f *roster) ready(slot event.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	if !f.opened {
		f.opened, f.openedAt = true, time.Now()
	}
	m.retired, m.report.Retired, m.report.Ready = false, false, time.Now()
	f.takeSlot(m)
	for _, device := range slot.Devices {
		delete(f.retired, device.String())
	}
}

// exited records that a slot's worker process has ended.
func (f *roster) exited(slot event.Slot, cpu time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.repeated += m.done
	m.worker, m.size, m.done, m.computed = nil, 0, 0, m.report.Records
	m.busyBefore, m.busy, m.tuning, m.awaits = m.busyBefore+m.busy, 0, false, ""
	m.report.CPU += cpu
	m.report.Rest(time.Now())
}

// lost records why a slot's worker was lost.
func (f *roster) lost(slot event.Slot, e *fault.Error, retired bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = e
	if e.Kind != fault.Device && e.Kind != fault.NoDevice {
		f.unusable = e
	}
	m := f.members[slot.Number]
	m.report.Lost++
	m.retired, m.report.Retired = retired, retired
	if e.Kind == fault.Device {
		for _, device := range slot.Devices {
			f.retired[device.String()] = e
		}
	}
	if retired {
		f.freeSlot(m, e.Kind == fault.Device)
	}
}

// freeSlot returns a retired worker's slot to the registry; a failed device loses all
// its slots. The caller must hold f.mu.
func (f *roster) freeSlot(m *member, failed bool) {
	if failed {
		f.registry.Fail(m.slot.Key())
		for _, other := range f.members {
			if other.slot.Key() == m.slot.Key() {
				other.freed = true
			}
		}
		return
	}
	if !m.freed {
		m.freed = true
		_ = f.registry.Release(m.slot.Key())
	}
}

// takeSlot reacquires the slot of a worker that came back: opening its kernel was the
// probe that its device passed. The caller must hold f.mu.
func (f *roster) takeSlot(m *member) {
	if !m.freed {
		return
	}
	if f.registry.Recover(m.slot.Key(), func(gpu.Device) error { return nil }) == nil {
		_, err := f.registry.Acquire(m.slot.Key())
		m.freed = err != nil
	}
}

// retire records that a device was lost and ends its workers: their slots see them exit
// and find the device retired.
func (f *roster) retire(device gpu.Device, why *fault.Error) {
	name := device.String()
	f.mu.Lock()
	known := f.retired[name] != nil
	f.retired[name] = why
	f.mu.Unlock()
	if known {
		return
	}
	for _, w := range f.workersOn(device) {
		w.Abandon()
	}
}

// retiredBy returns why a slot's device was lost, or nil if it was not.
func (f *roster) retiredBy(slot event.Slot) *fault.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, device := range slot.Devices {
		if e := f.retired[device.String()]; e != nil {
			return e
		}
	}
	return nil
}

// setUnsound records that a device needs a reset, or that it had one.
func (f *roster) setUnsound(device gpu.Device, unsound bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsound[device.String()] = unsound
}

// needsReset reports whether a device of a slot computes nothing correct before it is reset.
func (f *roster) needsReset(slot event.Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(slot.Devices, func(d gpu.Device) bool { return f.unsound[d.String()] })
}

// hasOpened reports whether some worker's kernel has been ready.
func (f *roster) hasOpened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// exhausted returns why no slot is left to do the remaining work.
func (f *roster) exhausted() *fault.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.last == nil:
		return fault.NoDeviceLeft.New("no device is left")
	case !f.opened && f.unusable != nil:
		return fault.KernelFails.New("the kernel could not be opened on any device: %w", f.unusable).WithDetail(f.unusable.Detail)
	}
	return fault.NoDeviceLeft.New("no device is left; the last one failed with: %s", f.last.Message).WithDetail(f.last.Detail)
}

// gpus returns the distinct GPUs of all slots.
func (f *roster) gpus() (devices []gpu.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		for _, d := range m.slot.Devices {
			if d.Kind == gpu.GPU && !slices.ContainsFunc(devices, func(other gpu.Device) bool { return d.String() == other.String() }) {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// devicesOf returns the devices of the slots with a key.
func (f *roster) devicesOf(key string) (devices []gpu.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.slot.Key() == key {
			devices = append(devices, m.slot.Devices...)
		}
	}
	return devices
}

// workers returns the running workers.
func (f *roster) workers() (list []*process.Worker) {
	return f.workersWhere(func(*member) bool { return true })
}

// workersOn returns the workers that use a device.
func (f *roster) workersOn(device gpu.Device) []*process.Worker {
	return f.workersWhere(func(m *member) bool {
		return slices.ContainsFunc(m.slot.Devices, func(d gpu.Device) bool { return d.String() == device.String() })
	})
}

// computing returns the workers that have a chunk.
func (f *roster) computing() []*process.Worker {
	return f.workersWhere(func(m *member) bool { return m.size > 0 })
}

func (f *roster) workersWhere(wanted func(*member) bool) (list []*process.Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.worker != nil && wanted(m) {
			list = append(list, m.worker)
		}
	}
	return list
}

// addMemory records how much memory a slot's framework holds and returns the sum over all
// slots of its device. Models that span several GPUs are not counted: their memory cannot
// be attributed to one.
func (f *roster) addMemory(slot event.Slot, memory wire.FrameworkMemory) gpu.FrameworkMemory {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[slot.Number].memory = memory
	total := gpu.FrameworkMemory{Library: memory.Library}
	for _, m := range f.members {
		if len(m.slot.Devices) == 1 && m.slot.Key() == slot.Key() {
			total.Allocated += m.memory.Allocated
			total.Cached += m.memory.Cached
		}
	}
	return total
}

// reports returns the slots' shares of the job.
func (f *roster) reports() (list []event.WorkerReport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.report.Close(time.Now())
		list = append(list, m.report)
	}
	return list
}
