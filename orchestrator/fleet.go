package orchestrator

import (
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// fleet is the job's slots with their workers, and what is known about their devices.
// Slots may join and leave while the job runs; a number is never used again.
type fleet struct {
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
	slot    Slot
	worker  *workerProcess
	retired bool    // its worker was lost and is not replaced for now, or it has left
	freed   bool    // it has no slot in the registry
	pace    float64 // the share of time in which it may compute
	memory  wire.FrameworkMemory
	report  WorkerReport
	sharing bool // added workers share its device's memory

	bytes       int64         // of the input of its finished segments
	recordBytes float64       // of its current chunk
	batches     int64         // finished
	computed    int64         // records that earlier workers of a concurrent kernel have computed
	busy        time.Duration // in which its worker's kernel had work
	busyBefore  time.Duration // the same for earlier workers
	load        time.Duration // how long its kernel took to open
	tuning      bool          // its worker is searching for its batch size
	awaits      Awaits        // what its kernel waits for

	size     int64          // of its current chunk; 0 for none
	done     int64          // records of that chunk
	since    time.Time      // when it was assigned
	endAsked bool           // it was asked to end the chunk
	ending   bool           // it has handed back the rest of the chunk
	notified *workerProcess // the worker that was notified that the job is nearing its end
}

func newFleet(registry *gpu.Registry, handBack time.Duration, oneByOne bool) *fleet {
	return &fleet{
		registry: registry, handBack: handBack, oneByOne: oneByOne,
		retired: make(map[string]*fault.Error), unsound: make(map[string]bool), paceChanged: make(chan struct{}),
	}
}

// join adds a slot, which has a slot in the registry and the next number.
func (f *fleet) join(slot Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, &member{slot: slot, pace: 1, report: WorkerReport{Slot: slot.Number, Device: slot.Name}})
}

// leave removes a slot for good. Its slot in the registry has already been released.
func (f *fleet) leave(slot Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.retired, m.freed = true, true
	m.report.Retired = m.report.Retired || f.retired[slot.key()] != nil
}

// started records that a slot has a worker process.
func (f *fleet) started(slot Slot, w *workerProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.worker = w
	if m.pace < 1 {
		w.setPace(m.pace, f.handBack)
	}
	if m.sharing {
		m.sendSharing()
	}
}

// ready records that a slot has an open kernel and its device works.
func (f *fleet) ready(slot Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	if !f.opened {
		f.opened, f.openedAt = true, time.Now()
	}
	m.retired, m.report.Retired, m.report.ready = false, false, time.Now()
	f.takeSlot(m)
	for _, device := range slot.Devices {
		delete(f.retired, device.String())
	}
}

// exited records that a slot's worker process has ended.
func (f *fleet) exited(slot Slot, cpu time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[slot.Number]
	m.worker, m.size, m.done, m.computed = nil, 0, 0, m.report.Records
	m.busyBefore, m.busy, m.tuning, m.awaits = m.busyBefore+m.busy, 0, false, ""
	m.report.CPU += cpu
	m.report.rest(time.Now())
}

// lost records why a slot's worker was lost.
func (f *fleet) lost(slot Slot, e *fault.Error, retired bool) {
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
func (f *fleet) freeSlot(m *member, failed bool) {
	if failed {
		f.registry.Fail(m.slot.key())
		for _, other := range f.members {
			if other.slot.key() == m.slot.key() {
				other.freed = true
			}
		}
		return
	}
	if !m.freed {
		m.freed = true
		_ = f.registry.Release(m.slot.key())
	}
}

// takeSlot reacquires the slot of a worker that came back: opening its kernel was the
// probe that its device passed. The caller must hold f.mu.
func (f *fleet) takeSlot(m *member) {
	if !m.freed {
		return
	}
	if f.registry.Recover(m.slot.key(), func(gpu.Device) error { return nil }) == nil {
		_, err := f.registry.Acquire(m.slot.key())
		m.freed = err != nil
	}
}

// retire records that a device was lost and ends its workers: their slots see them exit
// and find the device retired.
func (f *fleet) retire(device gpu.Device, why *fault.Error) {
	name := device.String()
	f.mu.Lock()
	known := f.retired[name] != nil
	f.retired[name] = why
	f.mu.Unlock()
	if known {
		return
	}
	for _, w := range f.workersOn(device) {
		w.abandon()
	}
}

// retiredBy returns why a slot's device was lost, or nil if it was not.
func (f *fleet) retiredBy(slot Slot) *fault.Error {
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
func (f *fleet) setUnsound(device gpu.Device, unsound bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsound[device.String()] = unsound
}

// needsReset reports whether a device of a slot computes nothing correct before it is reset.
func (f *fleet) needsReset(slot Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(slot.Devices, func(d gpu.Device) bool { return f.unsound[d.String()] })
}

// hasOpened reports whether some worker's kernel has been ready.
func (f *fleet) hasOpened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// exhausted returns why no slot is left to do the remaining work.
func (f *fleet) exhausted() *fault.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.last == nil:
		return fault.New(fault.NoDevice, "no device is left")
	case !f.opened && f.unusable != nil:
		return fault.New(fault.Incompatible, "the kernel could not be opened on any device: %w", f.unusable).WithDetail(f.unusable.Detail)
	}
	return fault.New(fault.NoDevice, "no device is left; the last one failed with: %s", f.last.Message).WithDetail(f.last.Detail)
}

// gpus returns the distinct GPUs of all slots.
func (f *fleet) gpus() (devices []gpu.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		for _, d := range m.slot.Devices {
			if d.Kind == gpu.GPU && !slices.ContainsFunc(devices, func(other gpu.Device) bool { return sameDevice(d, other) }) {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// devicesOf returns the devices of the slots with a key.
func (f *fleet) devicesOf(key string) (devices []gpu.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.slot.key() == key {
			devices = append(devices, m.slot.Devices...)
		}
	}
	return devices
}

// workers returns the running workers.
func (f *fleet) workers() (list []*workerProcess) {
	return f.workersWhere(func(*member) bool { return true })
}

// workersOn returns the workers that use a device.
func (f *fleet) workersOn(device gpu.Device) []*workerProcess {
	return f.workersWhere(func(m *member) bool {
		return slices.ContainsFunc(m.slot.Devices, func(d gpu.Device) bool { return sameDevice(d, device) })
	})
}

// computing returns the workers that have a chunk.
func (f *fleet) computing() []*workerProcess {
	return f.workersWhere(func(m *member) bool { return m.size > 0 })
}

func (f *fleet) workersWhere(wanted func(*member) bool) (list []*workerProcess) {
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
func (f *fleet) addMemory(slot Slot, memory wire.FrameworkMemory) gpu.FrameworkMemory {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[slot.Number].memory = memory
	total := gpu.FrameworkMemory{Library: memory.Library}
	for _, m := range f.members {
		if len(m.slot.Devices) == 1 && sameDevice(m.slot.Devices[0], slot.Devices[0]) {
			total.Allocated += m.memory.Allocated
			total.Cached += m.memory.Cached
		}
	}
	return total
}

// reports returns the slots' shares of the job.
func (f *fleet) reports() (list []WorkerReport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		list = append(list, m.report)
	}
	return list
}
