package gpu

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// wantFault checks kind and text. A NoDevice must also have a code with the advice to run on the CPU.
func wantFault(t *testing.T, err error, kind fault.Kind, text string) {
	t.Helper()
	if fault.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v (%v), want %v with %q", err, fault.KindOf(err), kind, text)
	}
	if kind == fault.NoDevice && err != nil &&
		!slices.Contains([]fault.Code{fault.NoGPU, fault.NoGPUSupport, fault.Driver, fault.GPUsHidden}, fault.As(err).Code) {
		t.Errorf("%v: no code for running on the CPU", err)
	}
}

func tokens(inv Inventory) string {
	var list []string
	for _, d := range inv.Devices {
		list = append(list, d.Token)
	}
	return strings.Join(list, ",")
}

func TestDiscover(t *testing.T) {
	m := newFake(t, same(2)...)
	inv, err := Discover(t.Context(), options(m))
	if err != nil {
		t.Fatal(err)
	}
	want := Device{
		Kind: GPU, Index: 1, UUID: fakeUUID(1), Name: "NVIDIA H200", Token: "1", PCIOrder: true,
		PCIBusID: "00000000:01:00.0", Memory: 100, MemoryFree: 90, CPUs: []int{2, 3},
	}
	if len(inv.Devices) != 2 || !equal(inv.Devices[1], want) {
		t.Errorf("got %+v, want the second to be %+v", inv.Devices, want)
	}
	if inv.Note != "" || inv.DriverVersion != "580.1" {
		t.Errorf("note %q, driver %q", inv.Note, inv.DriverVersion)
	}
	if calls := m.called(); calls[len(calls)-1] != "Shutdown" {
		t.Errorf("the last call is %s, want Shutdown", calls[len(calls)-1])
	}
}

func equal(a, b Device) bool {
	same := slices.Equal(a.CPUs, b.CPUs)
	a.CPUs, b.CPUs = nil, nil
	return same && a.Kind == b.Kind && a.Index == b.Index && a.UUID == b.UUID && a.Name == b.Name && a.Token == b.Token &&
		a.PCIOrder == b.PCIOrder && a.PCIBusID == b.PCIBusID && a.Memory == b.Memory && a.MemoryFree == b.MemoryFree
}

func TestDiscoverPinUUID(t *testing.T) {
	m := newFake(t, same(2)...)
	m.gpus[1].unsupported = []string{"UUID"}
	opts := options(m)
	opts.PinUUID = true
	inv, err := Discover(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if tokens(inv) != "0,1" || !inv.Devices[0].PCIOrder || !strings.Contains(inv.Note, "pinned by index") {
		t.Errorf("one has no UUID: got %+v, want indices and a note", inv)
	}
	opts.NVML = newFake(t, same(2)...)
	inv, err = Discover(t.Context(), opts)
	if err != nil || tokens(inv) != fakeUUID(0)+","+fakeUUID(1) || inv.Devices[0].PCIOrder || inv.Note != "" {
		t.Errorf("got %+v, %v, want UUIDs", inv, err)
	}
}

func TestDiscoverUnsupportedFieldsStayZero(t *testing.T) {
	m := newFake(t, same(1)...)
	m.gpus[0].unsupported = []string{"UUID", "Name", "Memory", "PCIBusID", "CPUs"}
	inv, err := Discover(t.Context(), options(m))
	if err != nil {
		t.Fatal(err)
	}
	want := Device{Kind: GPU, Name: "NVIDIA GPU", Token: "0", PCIOrder: true}
	if !equal(inv.Devices[0], want) {
		t.Errorf("got %+v, want %+v", inv.Devices[0], want)
	}
}

func TestDiscoverWithoutDriver(t *testing.T) {
	const want = "no NVIDIA driver: using the CPU"
	for _, cores := range []int{1, 3, 8} {
		for _, cause := range []error{ErrNoLibrary, ErrNotBuilt} {
			m := newFake(t)
			m.initErr = cause
			// An inherited variable does not matter here: there is nothing to hide.
			opts := options(m, "CUDA_VISIBLE_DEVICES=0")
			opts.CPUs = cores
			inv, err := Discover(t.Context(), opts)
			if err != nil || inv.Note != want || len(inv.Devices) != cores || inv.Devices[0].String() != "CPU 0" || tokens(inv) != strings.Repeat(",", len(inv.Devices)-1) {
				t.Errorf("%d cores: %+v, %v, want note %q", cores, inv, err, want)
			}
		}
	}
}

// The point of exit code 4: a GPU machine with a problem is not a CPU machine.
func TestDiscoverNeverASilentCPURun(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(*fakeMachine, *Options)
		want   string
	}{
		"init fails":             {func(m *fakeMachine, _ *Options) { m.initErr = errors.New("versions differ") }, "initialize NVML: versions differ"},
		"count fails":            {func(m *fakeMachine, _ *Options) { m.countErr = ErrLost }, "count the GPUs: the GPU is lost"},
		"no GPU":                 {func(m *fakeMachine, _ *Options) { m.gpus = nil }, "driver 580.1 is loaded but shows no GPU"},
		"all lost":               {func(m *fakeMachine, _ *Options) { m.gpus[0].lost, m.gpus[1].lostAfter = true, 2 }, "no usable GPU: GPU 0 and GPU 1: the GPU is lost"},
		"no library":             {func(m *fakeMachine, o *Options) { m.initErr, o.DriverPresent = ErrNoLibrary, yes }, "libnvidia-ml.so.1 not found"},
		"built without NVML":     {func(m *fakeMachine, o *Options) { m.initErr, o.DriverPresent = ErrNotBuilt, yes }, "built without NVML (no C compiler): rebuild with cgo"},
		"hidden":                 {func(_ *fakeMachine, o *Options) { o.Env = env("CUDA_VISIBLE_DEVICES=") }, "CUDA_VISIBLE_DEVICES is set but empty"},
		"hidden with blanks":     {func(_ *fakeMachine, o *Options) { o.Env = env("CUDA_VISIBLE_DEVICES= ") }, "is set but empty"},
		"hidden by -1":           {func(_ *fakeMachine, o *Options) { o.Env = env("CUDA_VISIBLE_DEVICES=-1") }, "=-1 names none of the machine's GPUs (2)"},
		"hidden by Slurm's word": {func(_ *fakeMachine, o *Options) { o.Env = env("CUDA_VISIBLE_DEVICES=NoDevFiles") }, "names none"},
		"named twice":            {func(_ *fakeMachine, o *Options) { o.Env = env("CUDA_VISIBLE_DEVICES=0,0") }, "names a GPU twice (0 and 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFake(t, same(2)...)
			opts := options(m)
			test.damage(m, &opts)
			inv, err := Discover(t.Context(), opts)
			wantFault(t, err, fault.NoDevice, test.want)
			if len(inv.Devices) != 0 {
				t.Errorf("got devices %v", inv.Devices)
			}
		})
	}
}

func yes() bool { return true }

func TestDiscoverLeavesOutLostGPUs(t *testing.T) {
	for name, damage := range map[string]func(*fakeGPU){
		"no handle":     func(g *fakeGPU) { g.lost = true },
		"at the first":  func(g *fakeGPU) { g.lostAfter = 1 },
		"on the way":    func(g *fakeGPU) { g.lostAfter = 3 },
		"at the last":   func(g *fakeGPU) { g.lostAfter = 5 },
		"no permission": func(g *fakeGPU) { g.forbidden = true },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFake(t, same(3)...)
			damage(m.gpus[1])
			inv, err := Discover(t.Context(), options(m))
			if err != nil {
				t.Fatal(err)
			}
			// Pinned by UUID: CUDA may not count the lost GPU.
			if tokens(inv) != fakeUUID(0)+","+fakeUUID(2) || inv.Devices[1].String() != "GPU 2" {
				t.Errorf("got %+v", inv.Devices)
			}
			if !strings.Contains(inv.Note, "skipping GPU 1: ") || !strings.Contains(inv.Note, "pinned by UUID") || strings.Contains(inv.Note, "\n") {
				t.Errorf("note %q", inv.Note)
			}
			if calls := m.called(); calls[len(calls)-1] != "Shutdown" {
				t.Errorf("no Shutdown: %v", calls)
			}
		})
	}
}

func TestDiscoverHungDriver(t *testing.T) {
	for name, test := range map[string]struct {
		hang func(*fakeMachine, chan struct{})
		want string
	}{
		"init":  {func(m *fakeMachine, c chan struct{}) { m.hangInit = c }, "within 500ms (initialize NVML): it hangs"},
		"count": {func(m *fakeMachine, c chan struct{}) { m.hangCount = c }, "within 500ms (count the GPUs): it hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			m, release := newFake(t, same(2)...), make(chan struct{})
			test.hang(m, release)
			opts := options(m)
			opts.Timeout = 500 * time.Millisecond
			_, err := Discover(t.Context(), opts)
			wantFault(t, err, fault.NoDevice, test.want)

			// If the driver returns after the caller gave up, no further call is made.
			close(release)
			<-m.ended
			if calls := m.called(); slices.Contains(calls, "Device") || calls[len(calls)-1] != "Shutdown" {
				t.Errorf("calls after the end: %v", calls)
			}
		})
	}
}

func TestDiscoverCanceled(t *testing.T) {
	m := newFake(t, same(1)...)
	m.hangInit = make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("the user pressed ^C")) })
	_, err := Discover(ctx, options(m))
	wantFault(t, err, fault.Canceled, "the user pressed ^C")
	close(m.hangInit)
	<-m.ended
}

func TestOptionsDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	if o.NVML == nil || o.Env == nil || o.CPUs < 1 || o.DriverPresent == nil || o.Timeout != 10*time.Second {
		t.Errorf("%+v", o)
	}
	_ = o.DriverPresent()
}

// A slow driver is reported to the user once.
func TestSlowDriverIsReported(t *testing.T) {
	m := newFake(t, same(2)...)
	m.hangCount = make(chan struct{})
	opts := options(m)
	var lines []string
	opts.SlowAfter = time.Millisecond
	opts.Slow = func(text string) {
		lines = append(lines, text)
		close(m.hangCount)
	}
	inventory, err := Discover(t.Context(), opts)
	if err != nil || len(inventory.Devices) != 2 {
		t.Errorf("%+v %v", inventory, err)
	}
	if want := "the NVIDIA driver has not answered for 1ms; waiting up to 10s"; !slices.Equal(lines, []string{want}) {
		t.Errorf("%q", lines)
	}
	opts.SlowAfter = time.Minute
	if _, err := Look(t.Context(), opts); err != nil || len(lines) != 1 {
		t.Errorf("%q %v", lines, err)
	}
}
