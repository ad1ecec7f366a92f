package gpu_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// sightLoss makes a machine's first card unreadable; the function that it returns makes it
// readable again.
var sightLosses = map[string]struct {
	lose    func(*gputest.Machine) (restore func())
	problem string
	hangs   bool
}{
	"the temperature cannot be read": {
		func(m *gputest.Machine) func() {
			m.Change(0, func(c *gputest.Card) { c.Unreadable("unknown error") })
			return func() {}
		},
		"its temperature cannot be read: unknown error", false,
	},
	"the temperature is no longer reported": {
		func(m *gputest.Machine) func() {
			m.Change(0, func(c *gputest.Card) { c.Sample.Temperature = gpu.Optional[int]{} })
			return func() {}
		},
		"the driver no longer reports its temperature", false,
	},
	"the sensor reports 0": {
		func(m *gputest.Machine) func() {
			m.Change(0, func(c *gputest.Card) { c.Temperature(0) })
			return func() {}
		},
		"its temperature cannot be read: the driver reports 0°C", false,
	},
	"the sensor reports -1": {
		func(m *gputest.Machine) func() {
			m.Change(0, func(c *gputest.Card) { c.Temperature(-1) })
			return func() {}
		},
		"its temperature cannot be read: the driver reports -1°C", false,
	},
	"its calls hang":   {func(m *gputest.Machine) func() { return m.HangCard(0) }, "the NVIDIA driver does not answer", true},
	"the driver hangs": {func(m *gputest.Machine) func() { return m.Hang() }, "the NVIDIA driver does not answer", true},
}

// newBriefWatch is a watch with a short timeout, which starts after the first sample: that
// may take longer on a busy machine.
func newBriefWatch(t *testing.T, machine *gputest.Machine) *watch {
	t.Helper()
	w := newWatch(t, machine, func(o *gpu.MonitorOptions) { o.Timeout = 500 * time.Millisecond })
	w.until(func() bool { return w.seen() })
	return w
}

// until polls, without letting time pass, until a condition holds.
func (w *watch) until(holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); w.poll(0) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain: %+v", w.monitor.Status())
		}
	}
}

func (w *watch) seen() bool {
	for _, h := range w.monitor.Status() {
		if h.Problem != "" || h.State == gpu.Unavailable {
			return false
		}
	}
	return true
}

// A hot card that can no longer be read stays paused for the duration of CRITICAL, then
// resumes cautiously. It is never treated as cool, however long that lasts and whatever
// the reason.
func TestUnseenHotCardStaysSlowed(t *testing.T) {
	for name, test := range sightLosses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := gputest.New(2)
			machine.Change(0, func(c *gputest.Card) { c.Temperature(90) })
			w := newWatch(t, machine, nil)
			if test.hangs {
				w = newBriefWatch(t, machine)
			}
			w.poll(0)
			restore := test.lose(machine)
			type look struct {
				after  time.Duration
				state  gpu.State
				pace   float64
				events string
			}
			for i, step := range []look{
				{3 * time.Second, gpu.Critical, 0, "unseen"},
				{30 * time.Second, gpu.Critical, 0, ""},
				{29 * time.Second, gpu.Critical, 0, ""},
				{time.Second, gpu.Unavailable, 0.5, "state_change"},
				{time.Hour, gpu.Unavailable, 0.5, ""},
			} {
				events := strings.Join(w.poll(step.after), " ")
				if name == "the driver hangs" { // the second card cannot be read either
					events = strings.TrimSuffix(strings.TrimPrefix(events, "state_change "), " unseen")
				}
				h := w.health(0)
				if h.State != step.state || h.Pace != step.pace || !strings.HasPrefix(events, step.events) || h.Problem != test.problem {
					t.Errorf("step %d: %s at %v, %q, %q, want %+v and %q", i, h.State, h.Pace, events, h.Problem, step, test.problem)
				}
				if strings.Contains(events, "resume") {
					t.Errorf("step %d: %q", i, events)
				}
			}
			machine.Change(0, func(c *gputest.Card) { c.Temperature(50) })
			restore()
			var events []string
			w.until(func() bool {
				for _, e := range w.events {
					events = append(events, string(e.Kind))
				}
				return w.health(0).Problem == ""
			})
			if h := w.health(0); h.State >= gpu.Throttled && h.Pace != 0.5 || h.State == gpu.Unavailable || h.Sample.Temperature.Or(0) != 50 {
				t.Errorf("seen again: %+v", h)
			}
			for range 3 { // one step at a time
				w.poll(time.Minute)
				for _, e := range w.events {
					events = append(events, string(e.Kind))
				}
			}
			if h := w.health(0); h.State != gpu.Optimal || h.Pace != 1 {
				t.Errorf("at the end: %+v", h)
			}
			if all := strings.Join(events, " "); !strings.Contains(all, "seen") || !strings.Contains(all, "resume") {
				t.Errorf("events %q", all)
			}
		})
	}
}

// A cool card that can no longer be read is not slowed, but does not stay OPTIMAL for long.
// A throttled card stays throttled.
func TestUnseenCardIsNeverFaster(t *testing.T) {
	for celsius, pace := range map[int]float64{40: 1, 72: 0.8, 80: 0.5} {
		machine := gputest.New(1)
		machine.Change(0, func(c *gputest.Card) { c.Temperature(celsius) })
		w := newWatch(t, machine, func(o *gpu.MonitorOptions) { o.Profile = gpu.Workstation })
		w.poll(0)
		before := w.health(0).State
		machine.Change(0, func(c *gputest.Card) { c.Unreadable("unknown error") })
		for i, want := range []gpu.State{before, before, gpu.Unavailable, gpu.Unavailable} {
			w.poll(20 * time.Second)
			if h := w.health(0); h.State != want || h.Pace != pace {
				t.Errorf("%d °C, round %d: %s at %v, want %s at %v", celsius, i, h.State, h.Pace, want, pace)
			}
		}
	}
}

// A driver that stops working altogether does not lift a pause either.
func TestBrokenDriverKeepsThePause(t *testing.T) {
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(90) })
	w := newWatch(t, machine, nil)
	w.poll(0)
	machine.Change(0, func(c *gputest.Card) { c.Lost = true })
	for range 2 {
		w.poll(10 * time.Second)
		if h := w.health(0); h.Pace != 0 || h.State != gpu.Unavailable {
			t.Errorf("a card that is lost while it pauses: %+v", h)
		}
	}
	machine.FailInit(errors.New("versions differ"))
	if w.poll(time.Hour); w.health(0).Pace != 0.5 {
		t.Errorf("%+v", w.health(0))
	}
}

// Hung calls for one card do not affect or delay the monitoring of the others.
func TestOneHungCardDoesNotAffectTheOthers(t *testing.T) {
	machine := gputest.New(3)
	w := newBriefWatch(t, machine)
	release := machine.HangCard(1)
	defer release()
	w.poll(3 * time.Second)
	for celsius, want := range map[int]gpu.State{88: gpu.Critical} {
		machine.Change(0, func(c *gputest.Card) { c.Temperature(celsius) })
		w.until(func() bool { return w.health(0).State == want })
		if h := w.health(0); h.Pace != 0 || h.Problem != "" {
			t.Errorf("GPU 0: %+v", h)
		}
	}
	machine.Change(0, func(c *gputest.Card) { c.Temperature(50) })
	w.clock.pass(2 * time.Minute)
	w.until(func() bool { return w.health(0).State == gpu.Throttled && w.health(0).Sample.Temperature.Or(0) == 50 })
	if h := w.health(1); h.Problem != "the NVIDIA driver does not answer" || h.State != gpu.Unavailable {
		t.Errorf("GPU 1: %+v", h)
	}
	if h := w.health(2); h.Problem != "" || h.State != gpu.Optimal {
		t.Errorf("GPU 2: %+v", h)
	}
	before := machine.Calls()
	w.poll(0)
	if made := machine.Calls() - before; made > 4 { // at most two calls for each of the others
		t.Errorf("%d calls: a card that hangs was asked again", made)
	}
}

// A call that hung for a long time returns an outdated value.
func TestAnswerOfAHungCallIsDiscarded(t *testing.T) {
	machine := gputest.New(1)
	w := newBriefWatch(t, machine)
	release := machine.HangCard(0)
	w.poll(3 * time.Second)
	w.clock.pass(10 * time.Second)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(88) })
	release()
	w.until(func() bool { return w.health(0).Problem == "" })
	if h := w.health(0); h.State != gpu.Critical || h.Sample.Temperature.Or(0) != 88 {
		t.Errorf("the first sample after the hang: %+v", h)
	}
	history := w.monitor.History(w.devices[0])
	if last := history[len(history)-1]; !last.Time.Equal(w.clock.now) {
		t.Errorf("taken at %s, not now", last.Time)
	}
}

// A card whose temperature could never be read is not slowed and not called OPTIMAL.
func TestTemperatureThatWasNeverReadable(t *testing.T) {
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Unreadable("insufficient permissions") })
	w := newWatch(t, machine, nil)
	for range 3 {
		w.poll(time.Minute)
		if h := w.health(0); h.State != gpu.Unavailable || h.Pace != 1 || h.Problem != "its temperature cannot be read: insufficient permissions" {
			t.Errorf("%+v", h)
		}
	}
}

// A cool card does not pause because its sensor reports what no card survives.
func TestImplausiblyHot(t *testing.T) {
	t.Parallel()
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	w.poll(0)
	for _, celsius := range []int{131, 255, 1 << 20} {
		machine.Change(0, func(c *gputest.Card) { c.Temperature(celsius) })
		w.poll(3 * time.Second)
		if h := w.health(0); h.Pace != 1 || h.Problem == "" {
			t.Errorf("at %d°C: %s at %v, %q", celsius, h.State, h.Pace, h.Problem)
		}
	}
}

// A hot card that reports a cool temperature from one sample to the next is not believed
// until it could have cooled that far.
func TestImplausibleFall(t *testing.T) {
	t.Parallel()
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(90) })
	w := newWatch(t, machine, nil)
	w.poll(0)
	machine.Change(0, func(c *gputest.Card) { c.Temperature(40) })
	w.poll(time.Second)
	if h := w.health(0); h.Pace != 0 || !strings.Contains(h.Problem, "a fall from 90 to 40°C within 1s") {
		t.Errorf("after a second: %s at %v, %q", h.State, h.Pace, h.Problem)
	}
	w.poll(4 * time.Second)
	if h := w.health(0); h.Problem != "" || h.Sample.Temperature.Or(0) != 40 {
		t.Errorf("after five seconds: %s, %q", h.Sample.Temperature, h.Problem)
	}
}

// A card that can be read only now and then, as with a slow driver, is reported once, and
// again when it has been readable for a while.
func TestUnseenAndSeenAgainIsNotRepeated(t *testing.T) {
	machine := gputest.New(1)
	w := newWatch(t, machine, nil)
	w.poll(0)
	var events []string
	for range 10 {
		machine.Change(0, func(c *gputest.Card) { c.Unreadable("a timeout") })
		events = append(events, w.poll(3*time.Second)...)
		machine.Change(0, func(c *gputest.Card) { c.Temperature(50) })
		events = append(events, w.poll(3*time.Second)...)
	}
	if got := strings.Join(events, " "); got != "unseen" {
		t.Errorf("while it comes and goes: %q", got)
	}
	if h := w.health(0); h.State != gpu.Optimal || h.Pace != 1 {
		t.Errorf("%+v", h)
	}
	events = w.poll(27 * time.Second)
	if got := strings.Join(append(events, w.poll(3*time.Second)...), " "); got != "seen" {
		t.Errorf("after 30 s: %q", got)
	}
}
