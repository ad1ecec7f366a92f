package gpu_test

import (
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// clock is a fake clock that a test advances.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(time.Duration) <-chan time.Time { return nil }

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// watch is a monitor on a fake machine and a fake clock.
type watch struct {
	t       *testing.T
	machine *gputest.Machine
	clock   *clock
	monitor *gpu.Monitor
	devices []gpu.Device
	events  []gpu.Event
}

// newWatch monitors all devices of a machine; prepare may change the options.
func newWatch(t *testing.T, machine *gputest.Machine, prepare func(*gpu.MonitorOptions)) *watch {
	t.Helper()
	world := gpu.Options{NVML: machine, Env: gputest.NoEnv}
	inventory, err := gpu.Discover(t.Context(), world)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, machine: machine, clock: newClock(), devices: inventory.Devices}
	options := gpu.MonitorOptions{
		Options: world, Clock: w.clock, Timeout: 20 * time.Second,
		OnEvent: func(e gpu.Event) { w.events = append(w.events, e) },
	}
	if prepare != nil {
		prepare(&options)
	}
	if w.monitor, err = gpu.NewMonitor(inventory.Devices, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.monitor.Close)
	return w
}

// poll lets time pass, takes a sample and returns the kinds of the resulting events.
func (w *watch) poll(after time.Duration) []string {
	w.t.Helper()
	w.clock.pass(after)
	w.events = nil
	w.monitor.Poll(w.t.Context())
	kinds := []string{}
	for _, e := range w.events {
		kinds = append(kinds, string(e.Kind))
	}
	return kinds
}

func (w *watch) health(i int) gpu.Health { return w.monitor.Status()[i] }
