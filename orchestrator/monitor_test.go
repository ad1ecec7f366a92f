package orchestrator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// quickConfig samples often and leaves states at once.
func quickConfig() gpu.Config {
	c := gpu.DefaultConfig()
	c.Interval, c.ThrottleCooldown, c.CriticalPause = 2*time.Millisecond, 0, 0
	return c
}

// onMachine returns a job of many short batches on a machine with GPUs, with one worker on
// each.
func onMachine(d jobDir, machine *gputest.Machine, kernel string) orchestrator.Config {
	config := d.config(kernel)
	config.Devices.GPUs, config.Batching.Size, config.Devices.Monitor = "all", 4, quickConfig()
	config.Devices.WorkersPerGPU = 1
	config = orchestrator.WithDevices(config, gpu.Options{NVML: machine, Env: gputest.NoEnv})
	return orchestrator.WithHandBack(config, time.Millisecond)
}

// gated makes the job's workers wait with their first batch until the returned function
// is called, so that what must be observed before that is.
func gated(t *testing.T, config *orchestrator.Config, workers int) (open func()) {
	t.Helper()
	arrived := t.TempDir()
	config.Kernel.Name = "test-tenants"
	config.Kernel.Config = fmt.Appendf(nil, `{"Dir":%q,"Arrived":%q,"All":%d}`, t.TempDir(), arrived, workers+1)
	return sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(arrived, "open"), nil, 0o666); err != nil {
			t.Error(err)
		}
	})
}

// story is what happened, in order.
type story struct {
	mu     sync.Mutex
	events []orchestrator.Event
}

func (s *story) add(e orchestrator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// count counts the wanted events from the first one of that name to the first later one
// that satisfies ends; -1 if there is none of that name.
func (s *story) count(from string, ends, wanted func(orchestrator.Event) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := slices.IndexFunc(s.events, func(e orchestrator.Event) bool { return e.EventName() == from })
	if start < 0 {
		return -1
	}
	n := 0
	for _, e := range s.events[start+1:] {
		if ends(e) {
			break
		}
		if wanted(e) {
			n++
		}
	}
	return n
}

func never(orchestrator.Event) bool { return false }

func (s *story) names(wanted ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, e := range s.events {
		if slices.Contains(wanted, e.EventName()) {
			names = append(names, e.EventName())
		}
	}
	return strings.Join(names, " ")
}

func started(device string) func(orchestrator.Event) bool {
	return func(e orchestrator.Event) bool {
		c, ok := e.(orchestrator.ChunkStarted)
		return ok && c.Device == device
	}
}

// A GPU that becomes too hot pauses, and resumes when it has cooled down: no chunk
// starts meanwhile, and no record is lost.
func TestHotDevicePausesAndResumes(t *testing.T) {
	d := newJobDir(t, numbered(400))
	machine, seen := gputest.New(1), &story{}
	config := onMachine(d, machine, "")
	open := gated(t, &config, 1)
	var heat, cool sync.Once
	paused := 0
	config.Display.OnEvent = func(e orchestrator.Event) {
		seen.add(e)
		switch e := e.(type) {
		case orchestrator.ChunkStarted:
			heat.Do(func() { machine.Change(0, func(c *gputest.Card) { c.Temperature(87) }) })
		case orchestrator.DeviceSample:
			if e.Pace == 0 {
				paused++
				open()
			}
			if paused == 50 { // 100 ms
				cool.Do(func() { machine.Change(0, func(c *gputest.Card) { c.Temperature(50) }) })
			}
		}
	}
	report := mustRun(t, d, config)
	if report.Succeeded != 400 {
		t.Errorf("%+v", report)
	}
	cooled := func(e orchestrator.Event) bool {
		sample, ok := e.(orchestrator.DeviceSample)
		return ok && sample.Pace > 0
	}
	if n := seen.count("critical", cooled, started("GPU 0")); n < 0 || n > 1 { // one may have been in flight
		t.Errorf("%d chunks started during the pause", n)
	}
	// The job may end before the GPU is back at full speed.
	if got := seen.names("throttle", "critical", "overheat", "resume"); got != "throttle critical resume" && got != "throttle critical" {
		t.Errorf("events %s", got)
	}
	device := report.Devices[0]
	if device.PeakTemperature.Or(0) != 87 || device.Paused <= 0 || device.Throttled < device.Paused || device.Device != "GPU 0" {
		t.Errorf("%+v", device)
	}
}

// Above its own limit a GPU hands back its work at once, and another does it.
func TestOverheatedDeviceGivesItsWorkBack(t *testing.T) {
	d := newJobDir(t, numbered(400))
	machine, seen := gputest.New(2), &story{}
	config := onMachine(d, machine, "")
	open := gated(t, &config, 2)
	config = orchestrator.WithHandBack(config, time.Hour) // the pause alone would let it keep its chunk
	config.Batching.ChunksPerGPU = 1
	var heat sync.Once
	config.Display.OnEvent = func(e orchestrator.Event) {
		seen.add(e)
		if c, ok := e.(orchestrator.ChunkStarted); ok && c.Device == "GPU 1" {
			heat.Do(func() { machine.Change(1, func(c *gputest.Card) { c.Temperature(91) }) })
		}
		if e.EventName() == "overheat" {
			open()
		}
	}
	report := mustRun(t, d, config)
	if report.Succeeded != 400 {
		t.Errorf("%+v", report)
	}
	// One may have been in flight; it comes back, or the job would not finish.
	if n := seen.count("overheat", never, started("GPU 1")); n < 0 || n > 1 {
		t.Errorf("%d chunks started on a GPU that is too hot", n)
	}
}

// A throttled device rests as long as it computes.
func TestSlowedDeviceFinishes(t *testing.T) {
	d := newJobDir(t, numbered(100))
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(80) })
	config := onMachine(d, machine, "")
	open := gated(t, &config, 1)
	config.Display.OnEvent = func(e orchestrator.Event) {
		if sample, ok := e.(orchestrator.DeviceSample); ok && sample.Pace == 0.5 {
			open()
		}
	}
	report := mustRun(t, d, config)
	if report.Succeeded != 100 || report.Devices[0].Throttled <= 0 || report.Devices[0].Paused != 0 {
		t.Errorf("%+v", report)
	}
	if share := report.Workers[0].BusyShare; share > 0.75 {
		t.Errorf("a device that should rest half of the time was busy for %.0f %% of it", 100*share)
	}
}

// A GPU that the driver reports as lost in the middle of a sample is retired, although
// there was no event.
func TestDeviceLostInASample(t *testing.T) {
	d := newJobDir(t, numbered(400))
	machine, seen := gputest.EightGPUs(), &story{}
	config := onMachine(d, machine, "")
	open := gated(t, &config, 2)
	config.Devices.GPUs = "0,4"
	var lose sync.Once
	config.Display.OnEvent = func(e orchestrator.Event) {
		seen.add(e)
		if c, ok := e.(orchestrator.ChunkStarted); ok && c.Device == "GPU 4" {
			lose.Do(func() { machine.Change(gputest.Dying, func(c *gputest.Card) { c.Lost = true }) })
		}
		if _, ok := e.(orchestrator.WorkerLost); ok {
			open()
		}
	}
	report := mustRun(t, d, config)
	if report.Succeeded != 400 {
		t.Errorf("%+v", report)
	}
	lost := seen.count("planned", never, func(e orchestrator.Event) bool {
		l, ok := e.(orchestrator.WorkerLost)
		return ok && l.Device == "GPU 4" && l.Retired && l.RetryAfter == 30*time.Second && l.Fault.Kind == fault.Device && strings.Contains(l.Fault.Message, "the GPU is lost")
	})
	if lost != 1 {
		t.Errorf("it was retired %d times", lost)
	}
}

// GPUs that are lost at the same time are tried again, as announced, before the job gives up:
// a driver that is reset brings all of them back.
func TestAllDevicesLostAreTriedAgain(t *testing.T) {
	d := newJobDir(t, numbered(400))
	machine := gputest.New(2)
	config := orchestrator.WithFirstProbe(onMachine(d, machine, ""), 300*time.Millisecond)
	open := gated(t, &config, 2)
	set := func(lost bool) {
		for i := range 2 {
			machine.Change(i, func(c *gputest.Card) { c.Lost = lost })
		}
	}
	ready, lost := 0, 0
	config.Display.OnEvent = func(e orchestrator.Event) {
		switch e := e.(type) {
		case orchestrator.WorkerReady:
			if ready++; ready == 2 {
				set(true)
			}
		case orchestrator.WorkerLost:
			if e.RetryAfter != 300*time.Millisecond {
				t.Errorf("it is not tried again: %+v", e)
			}
			if lost++; lost == 2 {
				set(false)
				open()
			}
		}
	}
	if report := mustRun(t, d, config); report.Succeeded != 400 || lost != 2 {
		t.Errorf("lost %d workers, %+v", lost, report)
	}
}

// TestDeviceThatNeedsAResetStaysOut: a card with a double-bit memory error still computes, but
// nothing correct. It gets no work before its counters show that it was reset.
func TestDeviceThatNeedsAResetStaysOut(t *testing.T) {
	for _, c := range []struct {
		name      string
		reset     bool
		noMonitor bool
	}{{name: "never reset"}, {name: "reset", reset: true}, {name: "not monitored", noMonitor: true}} {
		t.Run(c.name, func(t *testing.T) {
			d := newJobDir(t, numbered(400))
			machine := gputest.New(2)
			machine.Change(1, func(c *gputest.Card) { c.Sample.ECCUncorrected = gpu.Some(uint64(1)) })
			config := orchestrator.WithFirstProbe(onMachine(d, machine, ""), time.Millisecond)
			config.Devices.NoMonitor = c.noMonitor
			open := gated(t, &config, 2)
			var raise, check sync.Once
			back := 0
			config.Display.OnEvent = func(e orchestrator.Event) {
				switch e := e.(type) {
				case orchestrator.ChunkStarted:
					if e.Device == "GPU 1" {
						raise.Do(func() { machine.RaiseXid(1, 48) })
					}
				case orchestrator.WorkerLost:
					if e.Device != "GPU 1" || !e.NeedsReset || e.RetryAfter != 0 || !strings.Contains(e.Fault.Message, "Xid 48") {
						t.Errorf("%+v", e)
					}
					check.Do(func() {
						if c.reset {
							machine.Change(1, func(c *gputest.Card) { c.Sample.ECCUncorrected = gpu.Some(uint64(0)) })
							return
						}
						time.AfterFunc(300*time.Millisecond, open) // many probes would have come
					})
				case orchestrator.WorkerReady:
					if e.Device == "GPU 1" {
						if back++; back == 2 {
							open()
						}
					}
				}
			}
			want := 1
			if c.reset {
				want = 2
			}
			if report := mustRun(t, d, config); report.Succeeded != 400 || back != want {
				t.Errorf("GPU 1 was ready %d times, want %d; %+v", back, want, report)
			}
		})
	}
}

// TestAllDevicesNeedAReset: the job ends, it does not wait for a person.
func TestAllDevicesNeedAReset(t *testing.T) {
	d := newJobDir(t, numbered(400))
	machine := gputest.New(1)
	config := orchestrator.WithFirstProbe(onMachine(d, machine, ""), time.Millisecond)
	gated(t, &config, 1)
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, ok := e.(orchestrator.ChunkStarted); ok {
			machine.RaiseXid(0, 48)
		}
	}
	_, err := orchestrator.Run(t.Context(), config)
	if fault.KindOf(err) != fault.NoDevice || !strings.Contains(err.Error(), "until it is reset") {
		t.Errorf("%v, %v", fault.KindOf(err), err)
	}
}

// A GPU that is lost between the plan and the start is not used.
func TestDeviceLostBeforeTheStart(t *testing.T) {
	d := newJobDir(t, numbered(100))
	machine := gputest.New(2)
	config := onMachine(d, machine, "test-work")
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, ok := e.(orchestrator.Planned); ok {
			machine.Lose(1)
		}
	}
	if report := mustRun(t, d, config); report.Succeeded != 100 {
		t.Errorf("%+v", report)
	}
}

// A job whose GPUs are all lost before a kernel opens has no device: its kernel is not
// to blame.
func TestAllDevicesLostBeforeTheStart(t *testing.T) {
	d := newJobDir(t, numbered(100))
	machine := gputest.New(2)
	config := onMachine(d, machine, "test-open")
	config.Kernel.Config = []byte(`{"open":"hang"}`)
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, ok := e.(orchestrator.WorkerStarted); ok {
			machine.Lose(0)
			machine.Lose(1)
		}
	}
	_, err := orchestrator.Run(t.Context(), config)
	if fault.KindOf(err) != fault.NoDevice || !strings.Contains(err.Error(), "no device is left") {
		t.Errorf("%v, %v", fault.KindOf(err), err)
	}
}

// A driver that hangs costs a job its monitor, and nothing else.
func TestHungDriverDoesNotHoldUpAJob(t *testing.T) {
	d := newJobDir(t, numbered(100))
	machine := gputest.New(1)
	config := onMachine(d, machine, "test-work")
	var release func()
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, ok := e.(orchestrator.Planned); ok {
			release = machine.Hang()
		}
	}
	report := mustRun(t, d, config)
	release()
	if report.Succeeded != 100 || len(report.Devices) != 1 || !report.Devices[0].PeakTemperature.IsZero() {
		t.Errorf("%+v", report)
	}
}

func TestNoMonitor(t *testing.T) {
	d := newJobDir(t, numbered(20))
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(99) })
	config := onMachine(d, machine, "echo")
	config.Devices.NoMonitor = true
	if report := mustRun(t, d, config); report.Devices != nil {
		t.Errorf("%+v", report.Devices)
	}
}

// A record that does not fit next to another worker is computed after that worker has
// left, not marked.
func TestOutOfMemoryOnASharedDevice(t *testing.T) {
	input := strings.Replace(numbered(300), `{"id":150}`, `{"id":"wide"}`, 1)
	d := newJobDir(t, input)
	seen := &story{}
	config := onMachine(d, gputest.New(1), "")
	gated(t, &config, 2) // they wait for the third
	config.Devices.WorkersPerGPU = 3
	gone := make(map[int]bool)
	config.Display.OnEvent = func(e orchestrator.Event) {
		seen.add(e)
		switch e := e.(type) {
		case orchestrator.WorkerLeft:
			gone[e.Slot] = true
		case orchestrator.ChunkDone:
			if gone[e.Slot] {
				t.Errorf("slot %d reports results after it has left", e.Slot)
			}
		}
	}
	report := mustRun(t, d, config)
	if report.Succeeded != 300 || d.read("out.jsonl") != input {
		t.Errorf("%+v\n%s", report, d.logs())
	}
	left := seen.count("planned", never, func(e orchestrator.Event) bool { _, ok := e.(orchestrator.WorkerLeft); return ok })
	notices := seen.count("planned", never, func(e orchestrator.Event) bool {
		n, ok := e.(orchestrator.Notice)
		return ok && strings.HasPrefix(n.Text, "GPU 0: a record did not fit in memory next to another worker; from now on at most")
	})
	if left != 2 || notices != 2 {
		t.Errorf("%d workers left, %d notices, want 2 of each", left, notices)
	}
}

// Of four workers that run out of memory together, two leave if two fit: what failed next to
// a worker that has left since says nothing about those that remain.
func TestOutOfMemoryKeepsTheWorkersThatFit(t *testing.T) {
	d, config, seen := crowded(t, 400, 4, 2)
	config.Devices.WorkersPerGPU = 4
	left := 0
	config.Display.OnEvent = func(e orchestrator.Event) {
		seen.take(e)
		if _, ok := e.(orchestrator.WorkerLeft); ok {
			left++
		}
	}
	report := mustRun(t, d, config)
	if report.Succeeded != 400 || d.read("out.jsonl") != numbered(400) {
		t.Errorf("%+v\n%s", report, d.logs())
	}
	if left != 2 {
		t.Errorf("%d workers left, want 2:\n%s", left, seen)
	}
}
