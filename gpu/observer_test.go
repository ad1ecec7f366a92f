package gpu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// observed is an Observer of a fake machine with a fake clock.
type observed struct {
	t        *testing.T
	clock    *clock
	observer *gpu.Observer
	own      uint64
}

func observe(t *testing.T, machine *gputest.Machine) *observed {
	o := &observed{t: t, clock: newClock(), observer: gpu.NewObserver(gpu.Options{NVML: machine, Env: gputest.NoEnv})}
	o.observer.SetClock(o.clock)
	t.Cleanup(o.observer.Close)
	return o
}

// look lets time pass and returns the GPUs.
func (o *observed) look(after time.Duration) []gpu.Glance {
	o.t.Helper()
	o.clock.pass(after)
	sight, err := o.observer.Look(o.t.Context(), func(gpu.Device, gpu.Sample) uint64 { return o.own })
	if err != nil {
		o.t.Fatal(err)
	}
	return sight.GPUs
}

// is checks the state and the pace of a GPU.
func (o *observed) is(what string, g gpu.Glance, state gpu.State, pace float64) {
	o.t.Helper()
	if g.State != state.String() || g.Pace != pace {
		o.t.Errorf("%s: %s at %v, want %s at %v; problem %q", what, g.State, g.Pace, state, pace, g.Problem)
	}
}

// A hot GPU that cools down, or whose temperature, UUID or driver fails, leaves its state as
// slowly as in a job.
func TestObservedHotGPUStaysSlowed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*gputest.Card)
		later  gpu.State // than the pause
		pace   float64
	}{
		"unreadable temperature": {func(c *gputest.Card) { c.Unreadable("unknown error") }, gpu.Unavailable, 0.5},
		"0 °C":                   {func(c *gputest.Card) { c.Temperature(0) }, gpu.Unavailable, 0.5},
		"255 °C":                 {func(c *gputest.Card) { c.Temperature(255) }, gpu.Unavailable, 0.5},
		"no temperature":         {func(c *gputest.Card) { c.Sample.Temperature = gpu.Optional[int]{} }, gpu.Unavailable, 0.5},
		"sudden fall":            {func(c *gputest.Card) { c.Temperature(40) }, gpu.Throttled, 0.5},
		"unreadable UUID":        {func(c *gputest.Card) { c.UUIDError = errors.New("unknown error") }, gpu.Critical, 0},
		"unreadable UUID, cool": {func(c *gputest.Card) {
			c.UUIDError = errors.New("unknown error")
			c.Temperature(60)
		}, gpu.Throttled, 0.5},
		"lost": {func(c *gputest.Card) { c.Lost = true }, gpu.Unavailable, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			machine := gputest.New(2)
			machine.Change(0, func(c *gputest.Card) { c.Temperature(88) })
			o := observe(t, machine)
			o.is("hot", o.look(0)[0], gpu.Critical, 0)
			machine.Change(0, test.change)
			if g := o.look(2500 * time.Millisecond)[0]; g.Pace != 0 {
				t.Errorf("2.5 s later: %s at %v", g.State, g.Pace)
			}
			o.look(time.Minute)
			all := o.look(time.Second)
			o.is("after the pause", all[0], test.later, test.pace)
			o.is("the other GPU", all[1], gpu.Optimal, 1)
		})
	}
}

// Full memory alone slows a GPU but does not pause it, and memory of gpurun's own jobs does
// not count.
func TestObservedMemory(t *testing.T) {
	machine := gputest.New(1)
	machine.Change(0, func(c *gputest.Card) { c.Use(78) })
	o := observe(t, machine)
	o.is("full", o.look(0)[0], gpu.Critical, 0.5)
	o = observe(t, machine)
	o.own = 78 * gputest.GiB
	o.is("all of it our own", o.look(0)[0], gpu.Optimal, 1)
}

// Settings apply from the next look on.
func TestObserverConfigure(t *testing.T) {
	o := observe(t, gputest.New(1))
	o.is("before", o.look(0)[0], gpu.Optimal, 1)
	if err := o.observer.Configure(map[string]any{"temp_optimal": 20, "temp_normal": 30}); err != nil {
		t.Fatal(err)
	}
	o.is("after", o.look(0)[0], gpu.Throttled, 0.5)
}

// A GPU keeps its state while others appear, and while the driver does not work.
func TestObserverFollowsTheMachine(t *testing.T) {
	machine := gputest.New(2)
	machine.Change(1, func(c *gputest.Card) { c.Temperature(88) })
	o := observe(t, machine)
	o.is("hot", o.look(0)[1], gpu.Critical, 0)
	machine.Change(1, func(c *gputest.Card) { c.Temperature(60) })
	machine.Change(0, func(c *gputest.Card) {
		c.MIG, c.Instances = true, []gputest.Instance{{UUID: "MIG-0"}, {UUID: "MIG-1"}}
	})
	all := o.look(10 * time.Second)
	if len(all) != 3 || all[1].Device.String() != "MIG 0:1" {
		t.Fatalf("%+v", all)
	}
	o.is("next to new instances", all[2], gpu.Critical, 0)
	machine.FailInit(errors.New("driver not loaded"))
	if _, err := o.observer.Look(t.Context(), nil); err == nil {
		t.Error("no error")
	}
	machine.FailInit(nil)
	o.is("after a failure of the driver", o.look(10 * time.Second)[2], gpu.Critical, 0)
	o.is("after the pause", o.look(time.Minute)[2], gpu.Throttled, 0.5)
}
