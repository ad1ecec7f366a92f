package gpu_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
)

// A card without its own slowdown temperature warms up from 60 to 92 °C and cools down
// again, with a sample every 10 s. This is the table of docs/monitoring.md: every state,
// pace and event, and nothing else.
func TestHeatCurve(t *testing.T) {
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Sample.Slowdown = gpu.Optional[int]{} })
	w := newWatch(t, machine, func(o *gpu.MonitorOptions) { o.Profile = gpu.Workstation })
	for i, step := range []struct {
		celsius int
		state   gpu.State
		pace    float64
		events  string
	}{
		{60, gpu.Optimal, 1.0, "state_change"},
		{64, gpu.Optimal, 1.0, ""},
		{65, gpu.Normal, 0.8, "state_change"},
		{74, gpu.Normal, 0.8, ""},
		{75, gpu.Throttled, 0.5, "state_change throttle"},
		{84, gpu.Throttled, 0.5, ""},
		{85, gpu.Critical, 0.0, "state_change critical"},
		{90, gpu.Critical, 0.0, ""},
		{91, gpu.Critical, 0.0, "overheat"},
		{92, gpu.Critical, 0.0, ""},
		{88, gpu.Critical, 0.0, ""},
		{81, gpu.Critical, 0.0, ""},              // cool enough, but 50 s are not 60
		{81, gpu.Throttled, 0.5, "state_change"}, // one step at a time
		{60, gpu.Throttled, 0.5, ""},             // 10 s are not 30
		{73, gpu.Throttled, 0.5, ""},
		{73, gpu.Throttled, 0.5, ""}, // 30 s, but not 3 °C below 75
		{72, gpu.Normal, 0.8, "state_change resume"},
		{63, gpu.Normal, 0.8, ""},
		{63, gpu.Normal, 0.8, ""},
		{63, gpu.Normal, 0.8, ""}, // not 3 °C below 65
		{62, gpu.Optimal, 1.0, "state_change"},
		{60, gpu.Optimal, 1.0, ""},
	} {
		machine.Change(0, func(c *gputest.Card) { c.Temperature(step.celsius) })
		events := strings.Join(w.poll(10*time.Second), " ")
		h := w.health(0)
		if h.State != step.state || h.Pace != step.pace || events != step.events {
			t.Errorf("step %d, %d °C: %s %.1f %q, want %s %.1f %q", i, step.celsius, h.State, h.Pace, events, step.state, step.pace, step.events)
		}
		if got := w.monitor.ShouldThrottle(w.devices[0]); got != (step.pace < 1) || w.monitor.SpeedMultiplier(w.devices[0]) != step.pace {
			t.Errorf("step %d: ShouldThrottle %v, SpeedMultiplier %v", i, got, w.monitor.SpeedMultiplier(w.devices[0]))
		}
	}
	total := w.health(0).Total
	if peak, _ := total.PeakTemperature.Get(); peak != 92 || total.Paused != time.Minute || total.Throttled != 3*time.Minute {
		t.Errorf("peak %v, paused %s, throttled %s", total.PeakTemperature, total.Paused, total.Throttled)
	}
}

// From cool to overheated in one sample: all events at once, in this order.
func TestJumpSkipsNothing(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	w.poll(0)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(90) }) // its own limit is 89
	if got := strings.Join(w.poll(3*time.Second), " "); got != "state_change throttle critical overheat" {
		t.Errorf("events %q", got)
	}
	e := w.events[0]
	if e.From != gpu.Optimal || e.State != gpu.Critical || e.Pace != 0 || e.Temperature().Or(0) != 90 || e.Device.String() != "GPU 0" || !e.Time.Equal(w.clock.now) {
		t.Errorf("event %+v", e)
	}
}

// The thresholds follow the card's slowdown temperature, and the profile sets the pace.
func TestThresholdsFollowTheCard(t *testing.T) {
	for celsius, want := range map[int]gpu.State{
		68: gpu.Optimal, 69: gpu.Normal, 78: gpu.Normal, 79: gpu.Throttled, 84: gpu.Throttled, 85: gpu.Critical,
	} {
		machine := gputest.New(1) // slows down at 89 °C
		machine.Change(0, func(c *gputest.Card) { c.Temperature(celsius) })
		w := newWatch(t, machine, nil)
		w.poll(0)
		pace := map[gpu.State]float64{gpu.Optimal: 1, gpu.Normal: 1, gpu.Throttled: 0.5, gpu.Critical: 0}[want]
		if h := w.health(0); h.State != want || h.Pace != pace {
			t.Errorf("%d °C: %s at %v, want %s at %v", celsius, h.State, h.Pace, want, pace)
		}
	}
}

// Full memory changes the state but never pauses a card by itself, and the job's own
// memory does not count.
func TestMemory(t *testing.T) {
	machine := gputest.New(1)
	own := func(pid int) bool { return pid == 100 }
	w := newWatch(t, machine, func(o *gpu.MonitorOptions) { o.Own = own })
	use := func(gib uint64, processes ...gpu.Process) {
		machine.Change(0, func(c *gputest.Card) {
			c.Use(gib)
			c.Sample.Processes = gpu.Some(processes)
		})
	}
	for _, step := range []struct {
		used  uint64
		own   uint64 // shown by the driver under our pid
		hold  bool
		state gpu.State
		pace  float64
	}{
		{used: 8, state: gpu.Optimal, pace: 1},
		{used: 60, state: gpu.Normal, pace: 1},      // 75 %
		{used: 70, state: gpu.Throttled, pace: 0.5}, // 87 %
		{used: 78, state: gpu.Critical, pace: 0.5},  // 97 %
		{used: 8, state: gpu.Throttled, pace: 0.5},
		{used: 8, state: gpu.Normal, pace: 1},
		{used: 8, state: gpu.Optimal, pace: 1},
		{used: 79, hold: true, state: gpu.Optimal, pace: 1},          // all of it was allocated after the job began
		{used: 79, own: 70, hold: true, state: gpu.Optimal, pace: 1}, // 9 belong to others
		{used: 79, own: 10, hold: true, state: gpu.Throttled, pace: 0.5},
	} {
		if step.hold {
			w.monitor.Hold(w.devices[0])
		}
		if step.own > 0 {
			use(step.used, gpu.Process{PID: 100, Memory: gpu.Some(step.own * gputest.GiB)}, gpu.Process{PID: 7, Memory: gpu.Some(uint64(gputest.GiB))})
		} else {
			use(step.used)
		}
		w.poll(time.Minute)
		if h := w.health(0); h.State != step.state || h.Pace != step.pace {
			t.Errorf("%+v: %s at %v (%v)", step, h.State, h.Pace, h.MemoryPercent)
		}
	}
}

// A machine with one of each kind of trouble: no card is judged by another's.
func TestEightGPUs(t *testing.T) {
	machine := gputest.EightGPUs()
	var lost []string
	w := newWatch(t, machine, func(o *gpu.MonitorOptions) {
		o.OnLost = func(d gpu.Device) { lost = append(lost, d.String()) }
	})
	w.poll(0)
	machine.Lose(gputest.Dying)
	w.poll(3 * time.Second)
	w.poll(3 * time.Second)
	for _, h := range w.monitor.Status() {
		want := gpu.Optimal
		switch h.Device.String() {
		case "GPU 2":
			want = gpu.Critical
		case "GPU 4":
			want = gpu.Unavailable
			if h.Pace != 1 || !strings.Contains(h.Problem, "lost") {
				t.Errorf("the lost one: %+v", h)
			}
		case "GPU 6": // judged by its memory alone
			if !h.Sample.Temperature.IsZero() || h.Sample.Temperature.String() != "not supported" || !h.Total.PeakTemperature.IsZero() {
				t.Errorf("a temperature from nowhere: %+v", h)
			}
		case "MIG 5:0":
			if h.Sample.Temperature.Or(0) != 40 || h.Sample.Memory.Or(gpu.Memory{}).Total != 40*gputest.GiB || !h.Sample.Utilization.IsZero() {
				t.Errorf("an instance has its parent's heat and its own memory: %+v", h.Sample)
			}
		}
		if h.State != want {
			t.Errorf("%s is %s, want %s", h.Device, h.State, want)
		}
	}
	if !slices.Equal(lost, []string{"GPU 4"}) {
		t.Errorf("lost: %v", lost)
	}
	machine.Change(gputest.Dying, func(c *gputest.Card) { c.Lost = false }) // a reset
	w.poll(3 * time.Second)
	if h := w.health(4); h.State != gpu.Optimal || h.Problem != "" {
		t.Errorf("after a reset: %+v", h)
	}
}

// A hung driver is not called again. Its devices keep their states until it returns.
func TestHungDriver(t *testing.T) {
	machine := gputest.New(2)
	w := newWatch(t, machine, nil)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(88) })
	w.poll(0)
	if h := w.health(0); h.State != gpu.Critical {
		t.Fatalf("%+v", h)
	}
	w = newBriefWatch(t, machine)
	release := machine.Hang()
	events := strings.Join(w.poll(3*time.Second), " ")
	h := w.health(0)
	if h.State != gpu.Critical || h.Pace != 0 || h.Problem != "the NVIDIA driver does not answer" || h.Sample.Temperature.Or(0) != 88 || !h.Stale {
		t.Errorf("while it hangs: %+v", h)
	}
	if events != "unseen unseen" || w.events[0].Problem == "" {
		t.Errorf("events %q: %+v", events, w.events)
	}
	before := machine.Calls()
	w.poll(3 * time.Second)
	if machine.Calls() != before {
		t.Error("a driver that hangs was called again")
	}
	release()
	w.until(func() bool { return w.seen() })
}

func TestDriverThatDoesNotWork(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	machine.FailInit(errors.New("versions differ"))
	w.poll(0)
	if h := w.health(0); h.State != gpu.Unavailable || h.Problem != "versions differ" || h.Pace != 1 {
		t.Errorf("%+v", h)
	}
	machine.FailInit(nil)
	w.poll(0)
	if h := w.health(0); h.State != gpu.Optimal || h.Problem != "" {
		t.Errorf("mended: %+v", h)
	}
	w.monitor.Close()
	if users := machine.Users(); users != 0 {
		t.Errorf("%d Inits without a Shutdown", users)
	}
}

func TestConfigureWhileRunning(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(60) })
	w.poll(0)
	if err := w.monitor.Configure(map[string]any{"temp_throttle": 58, "history_size": 2}); err != nil {
		t.Fatal(err)
	}
	w.poll(3 * time.Second)
	w.poll(3 * time.Second)
	if h := w.health(0); h.State != gpu.Critical {
		t.Errorf("%+v", h)
	}
	if n := len(w.monitor.History(w.devices[0])); n != 2 {
		t.Errorf("%d samples kept", n)
	}
	err := w.monitor.Configure(map[string]any{"temp_throttle": 50, "temp_optimal": 80})
	if fault.KindOf(err) != fault.Usage || w.monitor.Config().TempThrottle != 58 {
		t.Errorf("%v, %+v", err, w.monitor.Config())
	}
}

func TestTrendAndHistory(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	direction := func(from, to int) gpu.Trend {
		for i := range 100 {
			machine.Change(0, func(c *gputest.Card) { c.Temperature(from + (to-from)*i/99) })
			w.poll(3 * time.Second)
		}
		trend, _ := w.health(0).Trend.Get()
		return trend
	}
	if got := direction(40, 60); got.Direction != gpu.Rising || got.Min != 40 || got.Max != 60 || got.Samples != 100 {
		t.Errorf("%+v", got)
	}
	if got := direction(60, 60); got.Direction != gpu.Stable || got.Average != 60 {
		t.Errorf("%+v", got)
	}
	if got := direction(60, 40); got.Direction != gpu.Falling {
		t.Errorf("%+v", got)
	}
	history := w.monitor.History(w.devices[0])
	if len(history) != 200 || !history[199].Time.Equal(w.clock.now) || history[0].Time.After(history[1].Time) {
		t.Errorf("%d samples", len(history))
	}
	history[199].Temperature = gpu.Some(1)
	if w.monitor.History(w.devices[0])[199].Temperature.Or(0) != 40 {
		t.Error("a copy is the original")
	}
}

func TestWhatKernelsAndDriverTell(t *testing.T) {
	w := newWatch(t, gputest.New(1), nil)
	w.monitor.SetFrameworkMemory(w.devices[0], gpu.FrameworkMemory{Allocated: 1, Cached: 2, Library: "torch"})
	w.monitor.CountXid(gpu.XidEvent{Device: w.devices[0], Xid: 31})
	w.monitor.CountXid(gpu.XidEvent{Device: w.devices[0], Xid: 31})
	w.monitor.CountXid(gpu.XidEvent{Device: gpu.Device{Kind: gpu.CPU}, Xid: 31})
	h := w.health(0)
	if f, _ := h.Framework.Get(); f.Library != "torch" || h.Xids[31] != 2 {
		t.Errorf("%+v", h)
	}
	h.Xids[31] = 99
	if w.health(0).Xids[31] != 2 {
		t.Error("a copy is the original")
	}
}

func TestEnergyAndLoad(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	for i := range 4 {
		machine.Change(0, func(c *gputest.Card) {
			c.Sample.Energy = gpu.Some(gpu.Joule(1000 + 500*i))
			c.Sample.Utilization = gpu.Some(20 * i)
		})
		w.poll(3 * time.Second)
	}
	if total := w.health(0).Total; total.Energy.Or(0) != 1500 || total.Utilization.Or(0) != 30 {
		t.Errorf("%+v", total)
	}
}

func TestRunPollsUntilTheEnd(t *testing.T) {
	machine := gputest.New(1)
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	config := gpu.DefaultConfig()
	config.Interval = time.Millisecond
	monitor, err := gpu.NewMonitor([]gpu.Device{{Kind: gpu.GPU, PCIOrder: true, Token: "0"}}, gpu.MonitorOptions{
		Options: gpu.Options{NVML: machine}, Config: config, Timeout: 20 * time.Second,
		OnSample: func([]gpu.Health) {
			if rounds++; rounds == 3 {
				cancel()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	monitor.Run(ctx)
	if rounds != 3 {
		t.Errorf("%d rounds", rounds)
	}
}

func TestUnknownProfile(t *testing.T) {
	_, err := gpu.NewMonitor(nil, gpu.MonitorOptions{Profile: "laptop", Options: gpu.Options{NVML: gputest.New(1)}})
	if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "neither datacenter nor workstation") {
		t.Error(err)
	}
}

// The first uncorrected memory error is reported once. Errors from before the job, and a
// counter that restarts after a reset, are not errors.
func TestMemoryErrorsAreReportedOnce(t *testing.T) {
	machine := gputest.New(2)
	machine.Change(0, func(c *gputest.Card) { c.Sample.ECCUncorrected = gpu.Some(uint64(7)) })
	w := newWatch(t, machine, nil)
	w.poll(0)
	for i, step := range []struct {
		count  uint64
		events string
		total  uint64
	}{
		{7, "", 0}, {9, "memory_errors", 2}, {9, "", 2}, {12, "", 5}, {0, "reset", 5}, {1, "", 6},
	} {
		machine.Change(0, func(c *gputest.Card) { c.Sample.ECCUncorrected = gpu.Some(step.count) })
		events := strings.Join(w.poll(3*time.Second), " ")
		if total := w.health(0).Total.ECCUncorrected.Or(99); events != step.events || total != step.total {
			t.Errorf("step %d: %q, %d errors, want %q, %d", i, events, total, step.events, step.total)
		}
	}
	if total := w.health(1).Total.ECCUncorrected; total != gpu.Some(uint64(0)) {
		t.Errorf("GPU 1: %v", total)
	}
}

// TestCardThatLowersItsClocks: a card that slows itself down is never at full speed without a
// word, and gpurun does not slow it further. A reason that comes and goes within the minimum
// duration of a state is one change.
func TestCardThatLowersItsClocks(t *testing.T) {
	const idle, powerCap, slowdown, thermal, brake gpu.Reasons = 1, 1 << 2, 1 << 3, 1 << 6, 1 << 7
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	w.poll(0)
	for i, step := range []struct {
		raw     gpu.Reasons
		state   gpu.State
		events  string
		reasons gpu.Reasons
	}{
		{idle, gpu.Optimal, "", 0},
		{powerCap, gpu.Normal, "state_change clocks", powerCap},
		{0, gpu.Normal, "", powerCap}, // 10 s are not 30
		{powerCap, gpu.Normal, "", powerCap},
		{slowdown | thermal, gpu.Throttled, "state_change clocks", powerCap | slowdown | thermal},
		{slowdown | thermal, gpu.Throttled, "", powerCap | slowdown | thermal},
		{slowdown | thermal, gpu.Throttled, "clocks", slowdown | thermal},
		{0, gpu.Throttled, "", slowdown | thermal},
		{0, gpu.Throttled, "", slowdown | thermal},
		{0, gpu.Optimal, "state_change clocks", 0},
		{slowdown | brake, gpu.Throttled, "state_change clocks", slowdown | brake},
	} {
		machine.Change(0, func(c *gputest.Card) { c.Sample.Throttle = gpu.Some(step.raw) })
		events := strings.Join(w.poll(10*time.Second), " ")
		if h := w.health(0); h.State != step.state || h.Pace != 1 || events != step.events || h.Clocks != step.reasons {
			t.Errorf("step %d, %s: %s at pace %.1f, %q, %s; want %s, %q, %s", i, step.raw, h.State, h.Pace, events, h.Clocks, step.state, step.events, step.reasons)
		}
	}
	w.poll(10 * time.Second)
	if total := w.health(0).Total; total.PowerCapped != 30*time.Second || total.HeatSlowed != 30*time.Second || total.Throttled != 0 {
		t.Errorf("%+v", total)
	}
}

// TestSlowedByMemory: the totals tell memory that others use from heat.
func TestSlowedByMemory(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	w.poll(0)
	machine.Change(0, func(c *gputest.Card) { c.Use(78) })
	w.poll(10 * time.Second)
	w.poll(10 * time.Second)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(80) })
	w.poll(10 * time.Second)
	w.poll(10 * time.Second)
	if total := w.health(0).Total; total.Throttled != 30*time.Second || total.ForMemory != 20*time.Second {
		t.Errorf("%+v", total)
	}
}
