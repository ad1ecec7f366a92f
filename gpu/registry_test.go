package gpu_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/gpu"
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
	d, ok := r.Acquire(names...)
	if !ok {
		t.Fatalf("no free slot among %v", names)
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
	if d, ok := r.Acquire(); ok {
		t.Errorf("a seventh slot of six: %s", d)
	}
	r.Release("GPU 2")
	if d, ok := r.Acquire("GPU 0"); ok {
		t.Errorf("a third slot of two: %s", d)
	}
	if got := acquire(t, r, "GPU 0", "GPU 2"); got != "GPU 2" {
		t.Errorf("got %s", got)
	}
}

// What has no slots gives none and releases none.
func TestRegistryWithoutSlots(t *testing.T) {
	r := gpu.NewRegistry(three(1), slots(1))
	r.Release("GPU 7")
	r.Release("GPU 0")
	r.Fail("GPU 7")
	r.Recover("GPU 7")
	if _, ok := r.Acquire("GPU 7"); ok {
		t.Error("a slot of an unknown device")
	}
	if n, lowered := r.LowerForOOM("GPU 7", 0); n != 0 || lowered || r.Yield("GPU 7") || r.Shared("GPU 7") || r.Exits("GPU 7") != 0 {
		t.Error("a device that is not there did something")
	}
	if status := r.Status(); status.TotalActive != 0 || r.Exits("GPU 0") != 0 {
		t.Errorf("a slot that was not taken was released: %+v", status)
	}
	if _, ok := gpu.NewRegistry(nil, nil).Acquire(); ok {
		t.Error("a slot of nothing")
	}
}

func TestFailAndRecover(t *testing.T) {
	r := gpu.NewRegistry(three(1, 1), slots(2))
	acquire(t, r, "GPU 0")
	acquire(t, r, "GPU 0")
	r.Fail("GPU 0")
	if got := acquire(t, r); got != "GPU 1" {
		t.Errorf("got %s", got)
	}
	r.Release("GPU 0")
	if r.Exits("GPU 0") != 0 {
		t.Error("a slot that failed was given back")
	}
	if _, ok := r.Acquire("GPU 0"); ok {
		t.Error("a failed device was given out")
	}
	r.Recover("GPU 0")
	acquire(t, r, "GPU 0")
	r.Recover("GPU 0") // a healthy device keeps its slots
	acquire(t, r, "GPU 0")
	if _, ok := r.Acquire("GPU 0"); ok {
		t.Error("more slots than before")
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
		cpus, gpus, want int
	}{
		{cpus: 16, gpus: 8, want: 2}, {cpus: 17, gpus: 8, want: 3}, {cpus: 2, gpus: 8, want: 1}, {cpus: 0, gpus: 1, want: 1}, {cpus: 16, gpus: 0, want: 1},
		{cpus: 16, gpus: 1, want: 16},
	} {
		if got := gpu.AutoCapacity(test.cpus, test.gpus); got != test.want {
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
				d, ok := r.Acquire()
				if !ok {
					continue
				}
				for name, f := range r.Status().PerGPU {
					if f.Active > f.Capacity {
						t.Errorf("%s: %+v", name, f)
					}
				}
				r.Release(d.String())
			}
		})
	}
	group.Wait()
	if status := r.Status(); status.TotalActive != 0 || status.TotalCapacity != 6 {
		t.Errorf("%+v", status)
	}
}
