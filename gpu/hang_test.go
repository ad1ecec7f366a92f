package gpu

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// The inventory skips hung GPUs and finds those that answer, whatever call hangs, and
// however many GPUs hang.
func TestDiscoveryLeavesOutGPUsThatHang(t *testing.T) {
	t.Parallel()
	stub := buildStub(t)
	const hangs = "the NVIDIA driver does not answer"
	for name, test := range map[string]struct {
		gpus, faults string
		want         []int  // indices of the GPUs found
		note, error  string // part of it
	}{
		"not selected":  {gpus: "0,2", faults: "1 nvmlDeviceGetName hang", want: []int{0, 2}, note: "pinned by UUID"},
		"all, handle":   {gpus: "all", faults: "1 nvmlDeviceGetHandleByIndex hang", want: []int{0, 2, 3}, note: "skipping GPU 1: " + hangs},
		"all, memory":   {gpus: "all", faults: "3 nvmlDeviceGetMemoryInfo hang", want: []int{0, 1, 2}, note: "skipping GPU 3: " + hangs},
		"three of four": {gpus: "all", faults: "0 nvmlDeviceGetUUID hang\n1 nvmlDeviceGetUUID hang\n2 nvmlDeviceGetUUID hang", want: []int{3}, note: "GPU 0, GPU 1 and GPU 2: " + hangs},
		"selected":      {gpus: "1", faults: "1 nvmlDeviceGetName hang", error: "no usable GPU: GPU 1: " + hangs},
		"all of them":   {gpus: "all", faults: "* nvmlDeviceGetUUID hang", error: "did not answer within 3s (query the GPUs): it hangs"},
		"slow":          {gpus: "all", faults: "1 nvmlDeviceGetName hang 100", want: []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := "GPU_TEST_TIMEOUT=5s"
			switch name {
			case "slow":
				timeout = "GPU_TEST_TIMEOUT=1m" // the test must wait for it, however slow this machine is
			case "all of them":
				timeout = "GPU_TEST_TIMEOUT=3s"
			}
			a := discover(t, test.gpus, stub, "NVMLSTUB_GPUS=4", timeout, stubState(t, test.faults))
			if test.error != "" {
				if a.Error == nil || a.Error.Kind != fault.NoDevice || !strings.Contains(a.Error.Message, test.error) {
					t.Errorf("got %+v, want %q", a.Error, test.error)
				}
				return
			}
			var found []int
			for _, d := range a.Inventory.Devices {
				found = append(found, d.Index)
			}
			if a.Error != nil || !slices.Equal(found, test.want) || !strings.Contains(a.Inventory.Note, test.note) || test.note == "" && a.Inventory.Note != "" {
				t.Errorf("got %+v, want %v and a note with %q", a, test.want, test.note)
			}
		})
	}
}

// When a hung call returns, the library is shut down and no other call is made.
func TestDiscoveryShutsDownAfterAHang(t *testing.T) {
	t.Parallel()
	m := newFake(t, same(3)...)
	m.gpus[1].hang = make(chan struct{})
	opts := options(m)
	opts.Timeout = time.Second
	inv, err := Discover(t.Context(), opts)
	if err != nil || len(inv.Devices) != 2 {
		t.Fatalf("%+v, %v", inv, err)
	}
	before := m.called()
	if slices.Contains(before, "Shutdown") {
		t.Error("shut down while a call is in the library")
	}
	close(m.gpus[1].hang)
	<-m.ended
	if after := m.called()[len(before):]; slices.Contains(after, "Device") || after[len(after)-1] != "Shutdown" {
		t.Errorf("after it came back: %v", after)
	}
}

// Xids of a GPU are reported although another GPU, which is not the job's, hangs.
func TestXidsBesideAGPUThatHangs(t *testing.T) {
	t.Parallel()
	m := newFake(t, same(3)...)
	devices := cardsOf(t, m, 2)
	m.gpus[1].hang = make(chan struct{})
	defer close(m.gpus[1].hang)
	reported := make(chan XidEvent, 1)
	go func() { _ = WatchXids(t.Context(), devices, options(m), func(e XidEvent) { reported <- e }) }()
	m.events <- fakeEvent{2, 79}
	if e := <-reported; e.Xid != 79 || e.Device.Index != 2 {
		t.Errorf("reported %+v", e)
	}
}

// cardsOf are the devices with these indices.
func cardsOf(t *testing.T, m *fakeMachine, indices ...int) (devices []Device) {
	t.Helper()
	inv, err := Discover(t.Context(), options(m))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range indices {
		devices = append(devices, inv.Devices[i])
	}
	return devices
}
