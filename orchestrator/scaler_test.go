package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// simulated returns a job of batches of 100 ms whose device has, for the scaler, the rates of
// one that computes lanes batches at a time. Once the file hurry exists, batches take no time.
func simulated(t *testing.T, records, lanes, fit int) (jobDir, orchestrator.Config, *scales) {
	d, config, seen := crowded(t, records, lanes, fit)
	config = orchestrator.WithLanes(orchestrator.WithScaling(config, 8, 100), lanes)
	seen.hurry = d.join("hurry")
	config.Kernel.Config = fmt.Appendf(nil, `{"Dir":%q,"Until":%q,"Lanes":%d,"Fit":%d,"Batch":100000000}`, t.TempDir(), seen.hurry, lanes, fit)
	return d, config, seen
}

// crowded returns a job of many batches of 25 ms on a device that computes lanes batches
// at a time and has room for fit kernels, on a machine with eight cores.
func crowded(t *testing.T, records, lanes, fit int) (jobDir, orchestrator.Config, *scales) {
	d := newJobDir(t, numbered(records))
	config := onMachine(d, gputest.New(1), "test-crowd")
	config.Batching.Size = 1
	config.Kernel.Config = fmt.Appendf(nil, `{"Dir":%q,"Lanes":%d,"Fit":%d,"Batch":25000000}`, t.TempDir(), lanes, fit)
	config = orchestrator.WithScaling(config, 8, 20)
	seen := &scales{}
	config.Display.OnEvent = seen.take
	return d, config, seen
}

// scales records what was decided about workers.
type scales struct {
	mu     sync.Mutex
	list   []orchestrator.WorkersScaled
	ready  int // kernels opened
	on     func(orchestrator.WorkersScaled)
	notice []string
	hurry  string // the file that ends a simulated job
}

// untilSettled ends a simulated job once the number of workers is settled.
func (s *scales) untilSettled() {
	s.on = func(e orchestrator.WorkersScaled) {
		if e.Settled {
			touch(s.hurry)
		}
	}
}

func (s *scales) take(event orchestrator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case orchestrator.WorkersScaled:
		s.list = append(s.list, e)
		if s.on != nil {
			s.on(e)
		}
	case orchestrator.WorkerReady:
		s.ready++
	case orchestrator.Notice:
		s.notice = append(s.notice, e.Text)
	}
}

func (s *scales) String() string {
	var lines []string
	for _, e := range s.list {
		lines = append(lines, fmt.Sprintf("%d → %s (settled %t)", e.From, e.ScalingReport, e.Settled))
	}
	return strings.Join(append(lines, s.notice...), "\n")
}

// most returns the most workers that there were.
func (s *scales) most() (n int) {
	for _, e := range s.list {
		n = max(n, e.Workers)
	}
	return n
}

// A device that computes four batches at a time gets four workers.
func TestJobGrowsToItsBestNumber(t *testing.T) {
	d, config, seen := simulated(t, 1600, 4, 0)
	seen.untilSettled()
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(1600) {
		t.Error("the output differs from the input")
	}
	if len(report.Scaling) != 1 || report.Scaling[0].Workers != 4 {
		t.Errorf("%+v\n%s", report.Scaling, seen)
	}
}

// Workers on a CPU that left because others used the cores come back when these are free.
func TestJobOnTheCPUGrowsAgain(t *testing.T) {
	d, config, seen := simulated(t, 1600, 4, 0)
	machine := gputest.New(0)
	machine.FailInit(gpu.ErrNoLibrary)
	config = orchestrator.WithDevices(config, gpu.Options{NVML: machine, Env: gputest.NoEnv, DriverPresent: func() bool { return false }})
	config = orchestrator.WithScaling(config, 4, 100)
	var settled, grown atomic.Bool
	var steps atomic.Int64
	freed := func() bool { return settled.Load() && steps.Add(1) > 20 }
	config = orchestrator.WithOthers(config, freed)
	seen.on = func(e orchestrator.WorkersScaled) {
		switch {
		case e.Settled && e.Workers == 1:
			settled.Store(true)
		case e.From == 1 && e.Workers == 4:
			grown.Store(true)
			touch(seen.hurry)
		}
	}
	report := mustRun(t, d, config)
	if !grown.Load() || d.read("out.jsonl") != numbered(1600) {
		t.Errorf("%+v\n%s", report.Scaling, seen)
	}
}

// A batch that does not fit next to added workers removes workers, and costs neither a
// record nor a smaller batch.
func TestJobShrinksWhenMemoryRunsOut(t *testing.T) {
	d, config, seen := simulated(t, 1000, 8, 3)
	seen.untilSettled()
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(1000) {
		t.Errorf("the output differs from the input\n%s", seen)
	}
	// On a busy host, four may not compute at the same time, so that there are more for a while.
	if report.Scaling[0].Workers != 3 || seen.most() < 4 || report.Failed != 0 {
		t.Errorf("%+v\n%s", report.Scaling, seen)
	}
}

// While added workers open their kernels, the others compute: here each of those that open waits for
// batches of the others.
func TestOpeningPausesNoWorker(t *testing.T) {
	d, config, seen := simulated(t, 1600, 4, 0)
	config.Kernel.Config = with(config.Kernel.Config, `"Beside":5`)
	seen.untilSettled()
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(1600) || report.Scaling[0].Workers != 4 {
		t.Errorf("%+v\n%s", report.Scaling, seen)
	}
}

// A first batch during which the GPU and the cores are idle adds workers before it ends: here
// it ends only when they are there.
func TestJobGrowsDuringALongFirstBatch(t *testing.T) {
	d, config, seen := crowded(t, 1600, 8, 0)
	config = orchestrator.WithFigures(orchestrator.WithScaling(config, 8, 1), func(f *scaling.Figures) { f.IdleCores, f.Cores = 7, 8 })
	config.Kernel.Config = with(config.Kernel.Config, `"Cold":8`)
	mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(1600) || len(seen.list) == 0 || seen.list[0].Workers != 8 {
		t.Error(seen)
	}
}

// Devices grow at the same time: here the added workers of each wait for those of the other.
func TestDevicesGrowTogether(t *testing.T) {
	d, config, seen := crowded(t, 4000, 16, 0)
	config = orchestrator.WithDevices(config, gpu.Options{NVML: gputest.New(2), Env: gputest.NoEnv})
	config = orchestrator.WithScaling(config, 8, 20)
	seen.hurry = d.join("hurry")
	config.Kernel.Config = with(config.Kernel.Config, fmt.Sprintf(`"Together":2,"Until":%q`, seen.hurry))
	mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(4000) || !exists(seen.hurry) {
		t.Error(seen)
	}
}

// with adds members to the configuration of a kernel.
func with(config []byte, members string) []byte {
	return []byte(strings.Replace(string(config), "{", "{"+members+",", 1))
}

// A resumed job starts with the last good number of workers.
func TestResumedJobStartsWithItsWorkers(t *testing.T) {
	d, config, seen := simulated(t, 1500, 4, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	grown := 0
	seen.on = func(e orchestrator.WorkersScaled) {
		if e.Settled && e.Workers > 1 {
			grown = e.Workers
			cancel()
		} else if e.Settled {
			touch(seen.hurry) // it failed
		}
	}
	if _, err := runContext(t, ctx, config); err == nil || grown == 0 {
		t.Fatalf("it was not stopped after it had grown: %v\n%s", err, seen)
	}
	again := &scales{}
	var planned []orchestrator.PlannedScaling
	config.Display.OnEvent = func(e orchestrator.Event) {
		if p, ok := e.(orchestrator.Planned); ok {
			planned = p.Plan.Scaling
		}
		again.take(e)
	}
	touch(seen.hurry)
	mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(1500) {
		t.Error("the output differs from the input")
	}
	if len(planned) != 1 || planned[0].Workers != grown || planned[0].Most != 8 {
		t.Errorf("planned %+v after %d\n%s", planned, grown, seen)
	}
}

// A kernel that wants to be alone stays alone, and so does one whose number is fixed.
func TestFixedNumberOfWorkers(t *testing.T) {
	for name, change := range map[string]func(*orchestrator.Config){
		"kernel": func(c *orchestrator.Config) {
			c.Kernel.Config = with(c.Kernel.Config, `"Most":1`)
		},
		"user": func(c *orchestrator.Config) { c.Devices.WorkersPerGPU = 1 },
	} {
		d, config, seen := crowded(t, 240, 4, 0)
		change(&config)
		mustRun(t, d, config)
		if seen.ready != 1 {
			t.Errorf("%s: %d kernels were opened\n%s", name, seen.ready, seen)
		}
	}
}

// Before a worker is added that would exceed the leased memory, the job leases more; if it
// cannot, it adds none.
func TestAddedWorkersAreLeased(t *testing.T) {
	d, config, seen := simulated(t, 900, 8, 0)
	seen.untilSettled()
	config.Kernel.Config = with(config.Kernel.Config, fmt.Sprintf(`"Memory":%d`, uint64(6*gputest.GiB)))
	var leased []uint64
	config.Devices.Claim = func(_ context.Context, r orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		return &orchestrator.Claim{
			Devices: r.Devices, Memory: 10 * gputest.GiB, Keep: func([]gpu.Device) {}, Release: func() {},
			More: func(_ context.Context, _ gpu.Device, bytes uint64) error {
				if len(leased) > 0 {
					return errors.New("none is left")
				}
				leased = append(leased, bytes)
				return nil
			},
		}, nil
	}
	report := mustRun(t, d, config)
	if len(leased) != 1 || leased[0] < 2*gputest.GiB || leased[0] > 5*gputest.GiB {
		t.Errorf("leased %v\n%s", leased, seen)
	}
	if s := report.Scaling[0]; s.Workers != 2 || !strings.Contains(s.Reason, "no further lease: none is left") {
		t.Errorf("%+v\n%s", s, seen)
	}
}

// The number of threads of a worker follows from the number of workers when it starts;
// those that started with far more are restarted.
func TestThreadsFollowTheNumberOfWorkers(t *testing.T) {
	d, config, seen := simulated(t, 3000, 8, 0)
	var options struct{ Dir string }
	if err := json.Unmarshal(config.Kernel.Config, &options); err != nil {
		t.Fatal(err)
	}
	opened := func() map[string]int {
		threads := make(map[string]int)
		names, _ := filepath.Glob(filepath.Join(options.Dir, "open-*"))
		for _, name := range names {
			_, count, _ := strings.Cut(filepath.Base(name), "threads-")
			threads[count]++
		}
		return threads
	}
	// Two of the eight are started again: the one with 8 threads and the one with 4.
	want := map[string]int{"8": 1, "4": 1, "2": 2, "1": 6}
	config.Display.OnEvent = func(e orchestrator.Event) {
		seen.take(e)
		switch e := e.(type) {
		case orchestrator.WorkerReady:
			if maps.Equal(opened(), want) {
				touch(seen.hurry)
			}
		case orchestrator.WorkersScaled:
			if e.Settled && e.Workers != 8 {
				touch(seen.hurry) // it failed
			}
		}
	}
	mustRun(t, d, config)
	if threads := opened(); seen.most() != 8 || !maps.Equal(threads, want) {
		t.Errorf("kernels by threads %v\n%s", threads, seen)
	}
}

// A job that ends within seconds keeps one worker.
func TestShortJobDoesNotScale(t *testing.T) {
	d, config, seen := crowded(t, 8, 4, 0)
	mustRun(t, d, config)
	if seen.ready != 1 {
		t.Errorf("%d kernels were opened\n%s", seen.ready, seen)
	}
	if _, err := os.Stat(orchestrator.FolderPath(config)); err != nil {
		t.Error(err)
	}
}
