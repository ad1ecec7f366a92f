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
)

// testFleet has two slots on GPU 0 and one on GPU 1.
func testFleet(t *testing.T) (*roster, []event.Slot) {
	t.Helper()
	devices := []gpu.Device{{Kind: gpu.GPU, Index: 0}, {Kind: gpu.GPU, Index: 1}}
	f := newRoster(gpu.NewRegistry(devices, func(gpu.Device) int { return 2 }), time.Second, false)
	var slots []event.Slot
	for i, device := range []int{0, 0, 1} {
		slot := event.Slot{Number: i, Name: devices[device].String(), Devices: devices[device : device+1]}
		if _, err := f.registry.Acquire(slot.Key()); err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
		f.join(slot)
	}
	return f, slots
}

// free returns how many slots of a device can be acquired.
func free(f *roster, slot event.Slot) (n int) {
	for {
		if _, err := f.registry.Acquire(slot.Key()); err != nil {
			break
		}
		n++
	}
	for range n {
		_ = f.registry.Release(slot.Key())
	}
	return n
}

// TestFleetLosesADevice: a lost device loses all its slots, and an open kernel brings the
// device and the slot back.
func TestFleetLosesADevice(t *testing.T) {
	f, slots := testFleet(t)
	f.lost(slots[0], fault.New(fault.Device, "fell off the bus"), true)
	if f.retiredBy(slots[1]) == nil || f.retiredBy(slots[2]) != nil {
		t.Error("not exactly the slots of the device are retired")
	}
	if free(f, slots[0]) != 0 || free(f, slots[2]) != 1 {
		t.Errorf("the registry has %d and %d free slots", free(f, slots[0]), free(f, slots[2]))
	}
	f.ready(slots[0])
	if f.retiredBy(slots[0]) != nil || f.members[0].freed || !f.members[1].freed {
		t.Error("the device did not come back with one slot")
	}
	if r := f.reports(); r[0].Lost != 1 || r[0].Retired || r[1].Lost != 0 {
		t.Errorf("reports: %+v", r)
	}
}

// TestFleetRetiresAWorker: one that is lost for another reason gives back its slot alone,
// once.
func TestFleetRetiresAWorker(t *testing.T) {
	f, slots := testFleet(t)
	for range 2 {
		f.lost(slots[0], fault.New(fault.Worker, "killed"), true)
	}
	if f.retiredBy(slots[0]) != nil || free(f, slots[0]) != 1 {
		t.Errorf("retired by %v, %d free slots", f.retiredBy(slots[0]), free(f, slots[0]))
	}
	if !f.members[0].retired || f.members[1].retired {
		t.Error("not exactly the slot of the worker is retired")
	}
}

// TestComputedCountsWhatIsLost: what a worker had computed of its chunk counts, also if it is lost
// and computed again.
func TestComputedCountsWhatIsLost(t *testing.T) {
	f, slots := testFleet(t)
	want := func(when string, n int64) {
		t.Helper()
		if got := f.computed(slots[0]); got != n {
			t.Errorf("%s: %d records computed, want %d", when, got, n)
		}
	}
	f.assigned(slots[0], task{chunk: chunk.Chunk{Records: 100}})
	f.holds(slots[0], 100, 30)
	want("on the way", 30)
	f.exited(slots[0], 0)
	want("lost", 30)
	f.assigned(slots[0], task{chunk: chunk.Chunk{Records: 100}})
	f.holds(slots[0], 100, 50)
	want("again", 80)
	f.finished(slots[0], segmentOf(chunk.Counts{Records: 100}))
	want("finished", 130)
}

// TestFleetJoinsAndLeaves: a slot may join while the job runs, and one that left is
// retired for good and frees nothing twice.
func TestFleetJoinsAndLeaves(t *testing.T) {
	f, slots := testFleet(t)
	more := event.Slot{Number: 3, Name: "GPU 1 #2", Devices: slots[2].Devices}
	if _, err := f.registry.Acquire(more.Key()); err != nil {
		t.Fatal(err)
	}
	f.join(more)
	f.finished(more, wire.Done{Segment: chunk.Segment{Tally: chunk.Tally{Counts: chunk.Counts{Records: 10}}}, Stats: wire.Stats{Busy: time.Second}})
	if own, others := f.speeds(slots[2], []int{3}, 5); others[0] != 10 || own <= 0 {
		t.Errorf("speeds: %v, %v", own, others)
	}
	_ = f.registry.Release(more.Key())
	f.leave(more)
	f.lost(more, fault.New(fault.Worker, "killed"), true)
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
			f.ready(slots[0])
		}
		for _, e := range test.lost {
			f.lost(slots[0], e, true)
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
	paused, changed := f.paused(slots[0])
	if other, _ := f.paused(slots[2]); !paused || other {
		t.Fatalf("paused: %t and %t", paused, other)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.awaitPace(t.Context(), slots[0], nil)
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
	f.addMemory(slots[0], wire.FrameworkMemory{Allocated: 1, Cached: 3})
	f.addMemory(slots[2], wire.FrameworkMemory{Allocated: 100})
	if sum := f.addMemory(slots[1], wire.FrameworkMemory{Allocated: 2, Cached: 4}); sum.Allocated != 3 || sum.Cached != 7 {
		t.Errorf("sum %+v", sum)
	}
}
