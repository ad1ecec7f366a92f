package view

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// runFor simulates a run of a job whose folder is dir: every second a sample of each
// device and progress, until the time is over. It returns the collector as a kill leaves
// it, once the disk has everything.
func runFor(t *testing.T, c *clock, dir string, devices int, d time.Duration) *Collector {
	t.Helper()
	collector := NewCollector(func() time.Time { return c.now })
	planned := plan(1_000_000_000, devices)
	planned.Folder = dir
	collector.Event(planned)
	for i := range int64(d / time.Second) {
		c.pass(time.Second)
		for n := range devices {
			device := gpu.Device{Kind: gpu.GPU, Index: n}.String()
			collector.Event(orchestrator.DeviceSample{
				Device: device, Pace: 1, Sample: gpu.Sample{Temperature: gpu.Some(60 + n), Power: gpu.Some(gpu.Watt(400)), Memory: gpu.Some(gpu.Memory{Used: 1 << 30})},
			})
		}
		collector.Event(orchestrator.Progress{Records: 1 << 40, Chunk: chunk.Counts{Records: 100 * i}, Job: chunk.Counts{Records: 100 * i}, Total: 1_000_000_000})
	}
	flush(t, collector)
	return collector
}

// flush waits until the disk has what the collector has written, and no longer: after a
// kill nothing else is written.
func flush(t *testing.T, c *Collector) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.course.disk.close(c.course.document())
	select {
	case <-c.course.disk.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the history was not written")
	}
	c.course.disk = nil
}

// The next run shows the earlier ones, with a gap between them and with the devices of all runs.
func TestCourseSurvivesKills(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	runFor(t, clock, dir, 1, time.Minute)
	clock.pass(time.Hour)
	second := runFor(t, clock, dir, 2, time.Minute)
	history := second.History()
	gaps, last := 0, 0.0
	for i, at := range history.Time {
		if at <= last {
			t.Errorf("point %d is not later than the one before", i)
		}
		last = at
		if history.Rate[i] == nil {
			gaps++
		} else if *history.Rate[i] > 101 {
			t.Errorf("point %d: rate %v, but no run computed more than 100 records per second", i, *history.Rate[i])
		}
	}
	if n := len(history.Time); gaps != 1 || n < 110 || n > 125 {
		t.Errorf("%d points with %d gaps, want two minutes with one", n, gaps)
	}
	if len(history.Devices) != 2 || history.Devices[1].Temperature[0] != nil || *history.Devices[1].Temperature[len(history.Time)-1] != 61 {
		t.Errorf("devices: %+v", history.Devices)
	}
	if runs := second.View().Timeline; len(runs) != 2 || runs[0].Kind != momentRun || runs[1].Kind != momentRun {
		t.Errorf("timeline: %+v", runs)
	}
}

// A kill loses at most saveInterval, without a chance to save.
func TestCourseIsSavedAsItRuns(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	collector := NewCollector(func() time.Time { return clock.now })
	planned := plan(100, 1)
	planned.Folder = dir
	collector.Event(planned)
	for deadline := time.Now().Add(10 * time.Second); ; {
		clock.pass(saveInterval)
		at := clock.now
		collector.Event(orchestrator.Progress{Total: 100})
		time.Sleep(10 * time.Millisecond) // for a disk that is busy
		if h, _ := load(dir); len(h.points) > 1 && at.Sub(h.points[len(h.points)-1].at()) <= saveInterval {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the course was not saved")
		}
	}
}

// Neither the file nor what is written to it grows with the length of the job.
func TestCourseIsBounded(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	runFor(t, clock, dir, 8, 24*time.Hour)
	data, err := os.ReadFile(filepath.Join(dir, historyFile))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := load(dir)
	if n := len(first.points); n > maxPoints || n < maxPoints/2 || len(data) > 1<<20 {
		t.Errorf("%d points and %d bytes after 24 hours of 8 GPUs", n, len(data))
	}
	if first.points[0].at().Sub(clock.now) > -23*time.Hour {
		t.Errorf("the history starts only at %v, and the job at %v", first.points[0].at(), clock.now.Add(-24*time.Hour))
	}
	clock.pass(time.Minute)
	if again := runFor(t, clock, dir, 8, time.Hour); len(again.History().Time) > 2*maxPoints {
		t.Errorf("%d points", len(again.History().Time))
	}
}

// A damaged or hostile file costs the history, not the job.
func TestCourseOfDamagedFile(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "garbage": "\x00\xff{]\n\n{}\n", "cut": `{"devices":["GPU 0"],"points":[{"t":1},{"t`,
		"numbers": `{"points":[{"t":1e300}]}`, "nulls": `{"points":[{"t":5,"devices":[[null,null,null,null,null,null]]}]}`,
		"no columns": `{"points":[{"t":1,"devices":[[1,1,1,1,1,1],[2,2,2,2,2,2]]}]}`,
	} {
		clock, dir := newClock(), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, historyFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := len(runFor(t, clock, dir, 1, 10*time.Second).History().Time); n < 9 {
			t.Errorf("%s: %d points", name, n)
		}
	}
}

// A folder that vanishes, as with --clean, stops nothing.
func TestCourseWithoutFolder(t *testing.T) {
	clock, dir := newClock(), filepath.Join(t.TempDir(), "gone")
	if n := len(runFor(t, clock, dir, 1, 10*time.Second).History().Time); n < 9 {
		t.Errorf("%d points", n)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was created")
	}
}

func TestTimeline(t *testing.T) {
	clock := newClock()
	c := NewCollector(func() time.Time { return clock.now })
	c.Event(plan(100, 1))
	c.Event(orchestrator.WorkerReady{Device: "GPU 0"})
	c.Event(orchestrator.WorkerReady{Device: "GPU 1"})
	done := orchestrator.ChunkDone{Device: "GPU 0", Stats: orchestrator.SegmentStats{Retries: 2}}
	c.Event(done)
	clock.pass(10 * time.Second)
	c.Event(done)
	clock.pass(2 * time.Minute)
	done.Stats.Retries = 1
	c.Event(done)
	c.Event(orchestrator.WorkerLost{Device: "GPU 0", Fault: fault.New(fault.Worker, "killed by signal 9")})
	c.Event(orchestrator.DeviceEvent{Kind: gpu.Throttle, Device: "GPU 0", Pace: 0.5, Temperature: gpu.Some(84)})
	for _, kind := range []gpu.EventKind{gpu.StateChange, gpu.Throttle, gpu.BecameCritical} { // one sample
		c.Event(orchestrator.DeviceEvent{Kind: kind, Device: "GPU 0", Temperature: gpu.Some(88)})
	}
	c.Event(orchestrator.DeviceEvent{Kind: gpu.Clocks, Device: "GPU 0", Pace: 1, Clocks: 1 << 2})
	c.Event(orchestrator.WorkersScaled{ScalingReport: orchestrator.ScalingReport{Device: "GPU 0", Workers: 2, Reason: "31% faster"}, From: 1})
	c.Event(orchestrator.WorkerStarted{Slot: 7, Device: "GPU 0 #2", PID: 1})
	if workers := c.View().Workers; len(workers) != 2 || workers[1].Name != "GPU 0 #2" || workers[1].Device != "GPU 0" {
		t.Errorf("workers: %+v", workers)
	}
	c.Event(orchestrator.DeviceEvent{Kind: gpu.StateChange, Device: "GPU 0", Pace: 1})
	type short struct {
		Kind, Text string
		Count      int64
	}
	var got []short
	for _, m := range c.View().Timeline {
		got = append(got, short{m.Kind, m.Text, m.Count})
	}
	want := []short{
		{momentRun, "started with 1 worker", 0}, {momentReady, "2 workers ready", 2},
		{momentRetry, "4 batches computed again", 4}, {momentRetry, "1 batch computed again", 1},
		{momentLost, "killed by signal 9; starting another worker", 0}, {momentSlowed, "slowed to 50% at 84°C", 0},
		{momentSlowed, "paused at 88°C", 0}, {momentSlowed, "lowers its own clocks: sw_power_cap", 0},
		{momentScaled, "2 workers, 31% faster", 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for range 10 * maxMoments {
		clock.pass(time.Second)
		c.Event(orchestrator.Paused{})
	}
	if list := c.View().Timeline; len(list) > maxMoments || list[0].Kind != momentRun {
		t.Errorf("%d moments, the first %+v", len(list), list[0])
	}
}
