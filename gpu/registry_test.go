package gpu_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// three returns GPUs 0 to 2 with this much free memory.
func three(free ...uint64) []gpu.Device {
	devices := make([]gpu.Device, len(free))
	for i := range devices {
		devices[i] = gpu.Device{Kind: gpu.GPU, Index: i, Token: "x", MemoryFree: free[i]}
	}
	return devices
}

func slots(n int) func(gpu.Device) int { return func(gpu.Device) int { return n } }

func acquire(t *testing.T, r *gpu.Registry, names ...string) string {
	t.Helper()
	d, err := r.Acquire(names...)
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestAcquire(t *testing.T) {
	r := gpu.NewRegistry(three(10, 30, 20), slots(2))
	var order []string
	for range 6 {
		order = append(order, acquire(t, r))
	}
	// The least loaded; on a tie the one with the most free memory.
	if got := strings.Join(order, ","); got != "GPU 1,GPU 2,GPU 0,GPU 1,GPU 2,GPU 0" {
		t.Errorf("order %s", got)
	}
	_, err := r.Acquire()
	var full *gpu.NoSlotError
	if !errors.As(err, &full) || full.Active != 6 || err.Error() != "no free slot: 6 of 6 are taken on 3 devices" {
		t.Errorf("%v", err)
	}
	if err := r.Release("GPU 2"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Acquire("GPU 0"); !errors.As(err, &full) {
		t.Errorf("%v", err)
	}
	if got := acquire(t, r, "GPU 0", "GPU 2"); got != "GPU 2" {
		t.Errorf("got %s", got)
	}
}

func TestRegistryErrors(t *testing.T) {
	r := gpu.NewRegistry(three(1), slots(1))
	if err := r.Release("GPU 7"); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), `unknown device "GPU 7"`) {
		t.Error(err)
	}
	if err := r.Release("GPU 0"); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "no slot to release") {
		t.Error(err)
	}
	if _, err := r.Acquire("GPU 7"); fault.KindOf(err) != fault.Usage {
		t.Error(err)
	}
	if err := r.Recover("GPU 7", nil); fault.KindOf(err) != fault.Usage {
		t.Error(err)
	}
	if n, lowered := r.LowerForOOM("GPU 7", 0); n != 0 || lowered || r.Yield("GPU 7") || r.Shared("GPU 7") || r.Fail("GPU 7") != 0 {
		t.Error("a device that is not there did something")
	}
	if _, err := gpu.NewRegistry(nil, nil).Acquire(); err == nil {
		t.Error("a slot of nothing")
	}
}

func TestFailAndRecover(t *testing.T) {
	r := gpu.NewRegistry(three(1, 1), slots(2))
	acquire(t, r, "GPU 0")
	acquire(t, r, "GPU 0")
	if n := r.Fail("GPU 0"); n != 2 {
		t.Errorf("%d slots released", n)
	}
	if got := acquire(t, r); got != "GPU 1" {
		t.Errorf("got %s", got)
	}
	if err := r.Release("GPU 0"); err == nil {
		t.Error("a slot that failed was given back")
	}
	sick := errors.New("still sick")
	if err := r.Recover("GPU 0", func(gpu.Device) error { return sick }); !errors.Is(err, sick) {
		t.Error(err)
	}
	_, err := r.Acquire("GPU 0")
	if err == nil || !strings.Contains(err.Error(), "1 of which have failed") {
		t.Errorf("a sick device was given out: %v", err)
	}
	if err := r.Recover("GPU 0", func(d gpu.Device) error { return nil }); err != nil {
		t.Error(err)
	}
	acquire(t, r, "GPU 0")
	if err := r.Recover("GPU 0", nil); err != nil { // a healthy device is not probed
		t.Error(err)
	}
}

func TestLowerForOOM(t *testing.T) {
	r := gpu.NewRegistry(three(1), slots(3))
	for range 3 {
		acquire(t, r)
	}
	if n, lowered := r.LowerForOOM("GPU 0", 0); n != 2 || !lowered {
		t.Errorf("%d, %v", n, lowered)
	}
	if n, lowered := r.LowerForOOM("GPU 0", 0); n != 2 || lowered { // one worker still has to exit
		t.Errorf("%d, %v", n, lowered)
	}
	if !r.Yield("GPU 0") || r.Yield("GPU 0") {
		t.Error("not exactly one left")
	}
	if n, lowered := r.LowerForOOM("GPU 0", 0); n != 2 || lowered { // it still uses memory
		t.Errorf("%d, %v", n, lowered)
	}
	r.Exited("GPU 0")
	if n, lowered := r.LowerForOOM("GPU 0", 0); n != 2 || lowered { // what began before may fit now
		t.Errorf("%d, %v", n, lowered)
	}
	if n, lowered := r.LowerForOOM("GPU 0", r.Exits("GPU 0")); n != 1 || !lowered || !r.Shared("GPU 0") || !r.Yield("GPU 0") || r.Shared("GPU 0") {
		t.Errorf("%d, %v", n, lowered)
	}
	if n, lowered := r.LowerForOOM("GPU 0", r.Exits("GPU 0")); n != 1 || lowered {
		t.Errorf("below one: %d, %v", n, lowered)
	}
}

func TestAutoCapacity(t *testing.T) {
	for _, test := range []struct {
		cpus, gpus   int
		memory, each uint64
		want         int
	}{
		{cpus: 16, gpus: 8, want: 2}, {cpus: 17, gpus: 8, want: 3}, {cpus: 2, gpus: 8, want: 1}, {cpus: 0, gpus: 1, want: 1}, {cpus: 16, gpus: 0, want: 1},
		{cpus: 16, gpus: 1, memory: 80, each: 30, want: 2}, {cpus: 16, gpus: 1, memory: 80, each: 100, want: 1}, {cpus: 16, gpus: 1, memory: 0, each: 30, want: 16},
	} {
		if got := gpu.AutoCapacity(test.cpus, test.gpus, test.memory, test.each); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

func TestRegistryStatus(t *testing.T) {
	r := gpu.NewRegistry(three(1, 2), slots(2))
	acquire(t, r)
	r.Fail("GPU 0")
	status := r.Status()
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"total_gpus":2,"total_capacity":2,"total_active":1,"utilization_percent":50,` +
		`"per_gpu":{"GPU 0":{"active":0,"capacity":0,"utilization_percent":0},"GPU 1":{"active":1,"capacity":2,"utilization_percent":50}}}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	status.PerGPU["GPU 1"] = gpu.GPUFigures{}
	if r.Status().PerGPU["GPU 1"].Active != 1 {
		t.Error("a copy is the original")
	}
}

// Concurrent use: never more slots than exist, and in the end all are free.
func TestRegistryConcurrently(t *testing.T) {
	r := gpu.NewRegistry(three(1, 2, 3), slots(2))
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for range 200 {
				d, err := r.Acquire()
				if err != nil {
					continue
				}
				for name, f := range r.Status().PerGPU {
					if f.Active > f.Capacity {
						t.Errorf("%s: %+v", name, f)
					}
				}
				if err := r.Release(d.String()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if status := r.Status(); status.TotalActive != 0 || status.TotalCapacity != 6 {
		t.Errorf("%+v", status)
	}
}
