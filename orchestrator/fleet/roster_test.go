package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

// testFleet has two slots on GPU 0 and one on GPU 1.
func testFleet(t *testing.T) (*roster, []*member) {
	t.Helper()
	devices := []gpu.Device{{Kind: gpu.GPU, Index: 0}, {Kind: gpu.GPU, Index: 1}}
	f := newRoster(gpu.NewRegistry(devices, func(gpu.Device) int { return 2 }), time.Second, false)
	for i, device := range []int{0, 0, 1} {
		slot := event.Slot{Number: i, Name: devices[device].String(), Devices: devices[device : device+1]}
		if _, ok := f.registry.Acquire(slot.Key()); !ok {
			t.Fatal("no slot")
		}
		f.join(slot)
	}
	return f, f.members
}

// free returns how many slots of a device can be acquired.
func free(f *roster, m *member) (n int) {
	for {
		if _, ok := f.registry.Acquire(m.slot.Key()); !ok {
			break
		}
		n++
	}
	for range n {
		f.registry.Release(m.slot.Key())
	}
	return n
}

// TestFleetLosesADevice: a lost device loses all its slots, and an open kernel brings the
// device and the slot back.
func TestFleetLosesADevice(t *testing.T) {
	f, slots := testFleet(t)
	slots[0].lost(fault.New(fault.Device, "fell off the bus"), true)
	if slots[1].retiredBy() == nil || slots[2].retiredBy() != nil {
		t.Error("not exactly the slots of the device are retired")
	}
	if free(f, slots[0]) != 0 || free(f, slots[2]) != 1 {
		t.Errorf("the registry has %d and %d free slots", free(f, slots[0]), free(f, slots[2]))
	}
	slots[0].ready(0)
	if slots[0].retiredBy() != nil || f.members[0].freed || !f.members[1].freed {
		t.Error("the device did not come back with one slot")
	}
	if a, b := slots[0].account.report, slots[1].account.report; a.Lost != 1 || a.Retired || b.Lost != 0 {
		t.Errorf("reports: %+v, %+v", a, b)
	}
}

// TestFleetRetiresAWorker: one that is lost for another reason gives back its slot alone,
// once.
func TestFleetRetiresAWorker(t *testing.T) {
	f, slots := testFleet(t)
	for range 2 {
		slots[0].lost(fault.New(fault.Worker, "killed"), true)
	}
	if slots[0].retiredBy() != nil || free(f, slots[0]) != 1 {
		t.Errorf("retired by %v, %d free slots", slots[0].retiredBy(), free(f, slots[0]))
	}
	if !f.members[0].retired || f.members[1].retired {
		t.Error("not exactly the slot of the worker is retired")
	}
}

// TestComputedCountsWhatIsLost: what a worker had computed of its chunk counts, also if it is lost
// and computed again.
func TestComputedCountsWhatIsLost(t *testing.T) {
	_, slots := testFleet(t)
	want := func(when string, n int64) {
		t.Helper()
		if got := slots[0].computed(); got != n {
			t.Errorf("%s: %d records computed, want %d", when, got, n)
		}
	}
	slots[0].begin(queue.Task{Chunk: chunk.Chunk{Records: 100}}, load{size: 100})
	slots[0].holds(load{size: 100, done: 30})
	want("on the way", 30)
	slots[0].exited(0, nil)
	want("lost", 30)
	slots[0].begin(queue.Task{Chunk: chunk.Chunk{Records: 100}}, load{size: 100})
	slots[0].holds(load{size: 100, done: 50})
	want("again", 80)
	slots[0].holds(load{})
	slots[0].account.finish(segmentOf(chunk.Counts{Records: 100}))
	want("finished", 130)
}

// TestFleetJoinsAndLeaves: a slot may join while the job runs, and one that left is
// retired for good and frees nothing twice.
func TestFleetJoinsAndLeaves(t *testing.T) {
	f, slots := testFleet(t)
	if _, ok := f.registry.Acquire(slots[2].slot.Key()); !ok {
		t.Fatal("no slot")
	}
	more := f.join(event.Slot{Name: "GPU 1 #2", Devices: slots[2].slot.Devices})
	more.account.finish(wire.Done{Segment: chunk.Segment{Tally: chunk.Tally{Counts: chunk.Counts{Records: 10}}}, Stats: wire.Stats{Busy: time.Second}})
	if own, others := f.speeds(slots[2], []int{3}, 5); others[0] != 10 || own <= 0 {
		t.Errorf("speeds: %v, %v", own, others)
	}
	f.registry.Release(more.slot.Key())
	more.leave(false)
	more.lost(fault.New(fault.Worker, "killed"), true)
	if free(f, more) != 1 || !f.members[3].retired {
		t.Errorf("%d free slots, retired: %v", free(f, more), f.members[3].retired)
	}
}

// TestFleetIsExhausted: the message names what helps the user most.
func TestFleetIsExhausted(t *testing.T) {
	device, kernel := fault.New(fault.Device, "fell off the bus"), fault.New(fault.Crash, "no such module")
	for name, test := range map[string]struct {
		opened bool
		lost   []*fault.Error
		want   string
	}{
		"no worker was lost":             {false, nil, "no device is left"},
		"the kernel opened before":       {true, []*fault.Error{kernel, device}, "failed with: fell off the bus"},
		"the kernel never opened":        {false, []*fault.Error{kernel, device}, "could not be opened on any device: no such module"},
		"only devices were lost":         {false, []*fault.Error{device}, "failed with: fell off the bus"},
		"the kernel opened, then it did": {true, []*fault.Error{device, kernel}, "failed with: no such module"},
	} {
		f, slots := testFleet(t)
		if test.opened {
			slots[0].ready(0)
		}
		for _, e := range test.lost {
			slots[0].lost(e, true)
		}
		if e := f.exhausted(); !strings.Contains(e.Message, test.want) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
}

// TestFleetPaces: a slot computes at the pace of its slowest device, and waiting slots
// learn of a change.
func TestFleetPaces(t *testing.T) {
	f, slots := testFleet(t)
	f.setPaces(map[string]float64{"GPU 0": 0, "GPU 1": 0.5})
	changed := slots[0].paused()
	if other := slots[2].paused(); changed == nil || other != nil {
		t.Fatalf("paused: %t and %t", changed != nil, other != nil)
	}
	run := &slotRun{
		member: slots[0], stays: t.Context(),
		fleet: &Fleet{queue: queue.New(nil, nil), Options: Options{Paused: func() <-chan struct{} { return nil }}},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run.awaitTurn(t.Context())
	}()
	f.setPaces(map[string]float64{"GPU 0": 0.5, "GPU 1": 0.5})
	for _, c := range []<-chan struct{}{changed, done} {
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			t.Fatal("the change of pace was not announced")
		}
	}
}

// TestFleetMemory: the memory of a device is the sum over its slots.
func TestFleetMemory(t *testing.T) {
	f, slots := testFleet(t)
	f.addMemory(slots[0].slot, wire.FrameworkMemory{Allocated: 1, Cached: 3})
	f.addMemory(slots[2].slot, wire.FrameworkMemory{Allocated: 100})
	if sum := f.addMemory(slots[1].slot, wire.FrameworkMemory{Allocated: 2, Cached: 4}); sum.Allocated != 3 || sum.Cached != 7 {
		t.Errorf("sum %+v", sum)
	}
}
