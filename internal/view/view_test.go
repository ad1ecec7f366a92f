package view

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// clock is a time that tests move.
type clock struct{ now time.Time }

func newClock() *clock                { return &clock{time.Unix(1_700_000_000, 0)} }
func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func plan(records int64, devices int) orchestrator.Planned {
	p := orchestrator.Plan{Records: records, BatchSize: 10}
	for i := range devices {
		d := gpu.Device{Kind: gpu.GPU, Index: i, UUID: fmt.Sprint("GPU-", i)}
		p.Slots = append(p.Slots, orchestrator.Slot{Number: i, Name: d.String(), Devices: []gpu.Device{d}})
	}
	return orchestrator.Planned{Plan: p}
}

func sum(cells []int64) (n int64) {
	for _, c := range cells {
		n += c
	}
	return n
}

// The cells of a strip always add up to what was counted, whatever the order and however
// often cells are merged.
func TestStrip(t *testing.T) {
	for _, total := range []int64{-1, 1, 239, 240, 241, 100_000, 1_000_000_007} {
		var s strip
		s.total(total)
		end := total
		if total < 0 {
			end = 50_000
		}
		pieces := min(end, 997) // prime: every position occurs once
		size := end / pieces
		var done, failed int64
		for i := range pieces {
			bad := min(i%3, size)
			s.add((i*7919)%pieces*size, size, bad)
			done, failed = done+size, failed+bad
		}
		shown := s.show(total, 0, []Worker{{First: 0, Records: 0}})
		if sum(shown.Done) != done || sum(shown.Failed) != failed {
			t.Errorf("%d records: %d done of %d, %d failed of %d", total, sum(shown.Done), done, sum(shown.Failed), failed)
		}
		for i := range shown.Done {
			if shown.Done[i] > shown.Size || shown.Failed[i] > shown.Done[i] {
				t.Errorf("%d records: cell %d of %d: %d done, %d failed", total, i, shown.Size, shown.Done[i], shown.Failed[i])
				break
			}
		}
	}
}

// A job that was killed and resumed shows what earlier runs have done, where it is.
func TestResuming(t *testing.T) {
	c := NewCollector(newClock().get)
	planned := plan(240, 1)
	planned.First = 1000 // --offset
	c.Event(planned)
	c.Event(orchestrator.Resuming{
		Done: 40, Total: 240, Job: chunk.Tally{Counts: chunk.Counts{Records: 40, Succeeded: 39, Failed: 1}},
		Ranges: []orchestrator.Range{{First: 1100, Records: 40, Failed: 1}},
	})
	c.Event(orchestrator.ChunkStarted{Slot: 0, First: 1000, Records: 10})
	v := c.View()
	if v.Done.Records != 40 || v.Resumed != 40 || sum(v.Strip.Done) != 40 || v.Strip.Done[100] != 1 || v.Strip.Running[9] != 1 || v.Strip.Running[10] != 0 {
		t.Errorf("%+v", v)
	}
}

// Answers that are logged count as progress at once, and as work only of the run that has
// computed them.
func TestAnswers(t *testing.T) {
	clock := newClock()
	c := NewCollector(clock.get)
	planned := plan(1000, 1)
	planned.Plan.Info.Concurrency = 8
	c.Event(planned)
	c.Event(orchestrator.Resuming{Done: 100, Answers: 400, Total: 1000, Job: chunk.Tally{Counts: chunk.Counts{Records: 100, Succeeded: 100}}})
	c.Event(orchestrator.ChunkStarted{Slot: 0, First: 100, Records: 300})
	for i := int64(1); i <= 20; i++ { // 10 records a second
		clock.pass(time.Second)
		c.Event(orchestrator.Progress{
			Slot: 0, Records: 300, Job: chunk.Counts{Records: 100}, Answers: 400 + 10*i, Ahead: 400 + 10*i, Held: 900, Computed: 10 * i, Total: 1000,
		})
	}
	v := c.View()
	if v.Answers != 600 || v.Reached() != 700 || v.ResumedAnswers != 400 || v.Rate < 9.9 || v.Rate > 10.1 || v.AverageRate < 9.9 || v.AverageRate > 10.1 || v.ETA == nil || *v.ETA < 29 || *v.ETA > 31 {
		t.Errorf("%d answers, %d resumed, rate %g, average %g, ETA %v", v.Answers, v.ResumedAnswers, v.Rate, v.AverageRate, v.ETA)
	}
	if d, w := v.Devices[0], v.Workers[0]; d.Records != 200 || d.Rate < 9 || d.Rate > 11 || w.Total != 200 || w.Done != 600 || w.Records != 900 {
		t.Errorf("%d records of the device (%g/s); %+v", d.Records, d.Rate, w)
	}
	// A checkpoint commits a part of the chunk: the worker continues.
	c.Event(orchestrator.ChunkDone{
		Slot: 0, First: 100, Counts: chunk.Tally{Counts: chunk.Counts{Records: 50, Succeeded: 50}}, Job: chunk.Counts{Records: 150},
		Answers: 550, Ahead: 550, Held: 850, Computed: 200, Total: 1000,
	})
	if w := c.View().Workers[0]; w.Phase != PhaseComputing || w.First != 150 || w.Records != 850 || w.Done != 550 || w.Total != 200 {
		t.Errorf("after a checkpoint: %+v", w)
	}
	c.Event(orchestrator.Finished{Report: orchestrator.Report{In: 1000, Pending: 850, Succeeded: 150, Answers: 540, Elapsed: 19 * time.Second}})
	if v := c.View(); v.Answers != 540 || v.Done.Records != 150 || v.AverageRate != 10 {
		t.Errorf("stopped: %d done, %d answers, %g/s", v.Done.Records, v.Answers, v.AverageRate)
	}
}

func (c *clock) get() time.Time { return c.now }

func TestRates(t *testing.T) {
	clock := newClock()
	c := NewCollector(clock.get)
	c.Event(plan(10_000, 2))
	clock.pass(time.Minute) // to load a model
	for i := range 2 {
		c.Event(orchestrator.ChunkStarted{Slot: i, Records: 8000})
	}
	for i := int64(1); i <= 60; i++ { // 100 records a second, GPU 0 three quarters of them
		clock.pass(time.Second)
		c.Event(orchestrator.Progress{Slot: 0, Chunk: chunk.Counts{Records: 75 * i}, Computed: 75 * i, Records: 8000, Job: chunk.Counts{Records: 100 * i}, Total: 10_000})
		c.Event(orchestrator.Progress{Slot: 1, Chunk: chunk.Counts{Records: 25 * i}, Computed: 25 * i, Records: 8000, Job: chunk.Counts{Records: 100 * i}, Total: 10_000})
	}
	v := c.View()
	if v.Rate < 99 || v.Rate > 101 || v.AverageRate < 99 || v.AverageRate > 101 || v.ETA == nil || *v.ETA < 39 || *v.ETA > 41 {
		t.Errorf("rate %g, average %g, ETA %v", v.Rate, v.AverageRate, v.ETA)
	}
	if r := v.Devices[0].Rate; r < 72 || r > 78 {
		t.Errorf("GPU 0: %g records/s", r)
	}
	c.Event(orchestrator.Paused{})
	if v := c.View(); v.Phase != PhasePaused || v.ETA != nil {
		t.Errorf("paused: %s, %v", v.Phase, v.ETA)
	}
}

// A day of a busy job and a million events take as much memory as a minute. It starts no
// goroutine, so that scripts/test.sh runs it without the race detector.
func TestMemoryIsFlat(t *testing.T) {
	clock := newClock()
	c := NewCollector(clock.get)
	c.Event(plan(100_000_000, 8))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var latency orchestrator.Histogram
	latency.Add(20 * time.Millisecond)
	run := func(events int) {
		for i := range events {
			clock.pass(86 * time.Millisecond) // a day in a million
			slot := i % 8
			switch {
			case i%100 == 0:
				first := int64(i) * 90
				tally := chunk.Tally{Counts: chunk.Counts{Records: 90, Failed: 1}, Causes: map[string]chunk.KindStats{fmt.Sprint("batch: ", i): {Count: 1}}}
				c.Event(orchestrator.ChunkDone{Slot: slot, First: first, Counts: tally, Total: 100_000_000, Stats: orchestrator.SegmentStats{Latency: &latency}})
			case i%35 == 0:
				c.Event(orchestrator.DeviceSample{Device: fmt.Sprint("GPU ", slot), Sample: gpu.Sample{Temperature: gpu.Some(60 + i%20)}})
			default:
				c.Event(orchestrator.Progress{Slot: slot, Records: 1000, Total: 100_000_000, Latency: &latency})
			}
		}
	}
	run(20_000)
	before := heap()
	run(1_000_000)
	after := heap()
	if grown := int64(after) - int64(before); grown > 1<<20 {
		t.Errorf("grew by %d bytes, from %d", grown, before)
	}
	if n := len(c.History().Time); n > maxPoints || n < maxPoints/3 {
		t.Errorf("%d points", n)
	}
	if n := len(c.View().Failures); n > 100 {
		t.Errorf("%d causes", n)
	}
	data, err := json.Marshal(c.View())
	if err != nil || len(data) > 100_000 {
		t.Errorf("%d bytes of JSON, %v", len(data), err)
	}
}

// TestCountersNeverFall: what a lost worker had computed is no longer done, at once. What the
// metrics count never falls: finished records, and those that a device has computed.
func TestCountersNeverFall(t *testing.T) {
	c := NewCollector(newClock().get)
	c.Event(plan(1000, 2))
	var before View
	then := func(what string, event orchestrator.Event, done, finished, computed int64) {
		t.Helper()
		c.Event(event)
		v := c.View()
		if v.Done.Records != done || v.Finished.Records != finished || v.Devices[0].Records != computed {
			t.Errorf("%s: %d done, %d finished, %d computed, want %d, %d and %d", what, v.Done.Records, v.Finished.Records, v.Devices[0].Records, done, finished, computed)
		}
		if v.Finished.Succeeded < before.Finished.Succeeded || v.Finished.Failed < before.Finished.Failed || v.FailuresByKind["record"] < before.FailuresByKind["record"] ||
			v.Devices[0].Records < before.Devices[0].Records {
			t.Errorf("%s: a count falls from %+v to %+v", what, before, v)
		}
		before = v
	}
	before = c.View()
	good := func(n int64) chunk.Counts { return chunk.Counts{Records: n, Succeeded: n} }
	then("begun", orchestrator.ChunkStarted{Slot: 0, First: 0, Records: 400}, 0, 0, 0)
	then("on the way", orchestrator.Progress{Slot: 0, Chunk: good(300), Computed: 300, Records: 400, Job: good(300), Total: 1000}, 300, 0, 300)
	then("lost", orchestrator.WorkerLost{Slot: 0, Fault: fault.New(fault.Worker, "killed")}, 0, 0, 300)
	then("again", orchestrator.ChunkStarted{Slot: 0, First: 0, Records: 400}, 0, 0, 300)
	then("on the way again", orchestrator.Progress{Slot: 0, Chunk: good(100), Computed: 400, Records: 400, Job: good(100), Total: 1000}, 100, 0, 400)
	then("finished", orchestrator.ChunkDone{Slot: 0, Counts: chunk.Tally{Counts: good(400)}, Computed: 700, Job: good(400), Total: 1000}, 400, 400, 700)
	then("suspicious", orchestrator.ChunkStarted{Slot: 0, First: 400, Records: 100}, 400, 400, 700)
	then("on the way", orchestrator.Progress{Slot: 0, Chunk: good(100), Computed: 800, Records: 100, Job: good(500), Total: 1000}, 500, 400, 800)
	then("suspended", orchestrator.ChunkStarted{Slot: 0, First: 500, Records: 100}, 500, 400, 800)
	then("cleared", orchestrator.ChunkDone{Slot: 0, First: 400, Counts: chunk.Tally{Counts: good(100)}, Computed: 790, Job: good(500), Total: 1000}, 500, 500, 800)
	given := chunk.Tally{
		Counts: chunk.Counts{Records: 100, Failed: 100},
		Kinds:  map[string]chunk.KindStats{"record": {Count: 100}}, Causes: map[string]chunk.KindStats{"record:x": {Count: 100}},
	}
	then("given up", orchestrator.ChunkGivenUp{First: 500, Records: 100, Failed: 100, Counts: given, Fault: fault.New(fault.Crash, "boom")}, 500, 600, 800)
	then("moves on", orchestrator.Progress{Slot: 1, Chunk: good(200), Computed: 200, Records: 400, Job: chunk.Counts{Records: 800, Succeeded: 700, Failed: 100}, Total: 1000}, 800, 600, 800)
	then("stopped", orchestrator.Finished{Report: orchestrator.Report{In: 1000, Pending: 400, Succeeded: 500, Failed: 100}}, 600, 600, 800)
}

// TestUsageNeverFalls: events of different slots can overtake each other.
func TestUsageNeverFalls(t *testing.T) {
	c := NewCollector(newClock().get)
	c.Event(plan(1000, 2))
	c.Event(orchestrator.Progress{Slot: 0, Usage: map[string]int64{"total_tokens": 200}})
	c.Event(orchestrator.Progress{Slot: 1, Usage: map[string]int64{"total_tokens": 100}})
	if n := c.View().Figures["total_tokens"]; n != 200 {
		t.Errorf("%g tokens, want 200", n)
	}
}

// TestExitedWorkersStayExited: the results of a worker that has left or was lost may be
// booked afterwards. They do not bring it back.
func TestExitedWorkersStayExited(t *testing.T) {
	for _, exit := range []orchestrator.Event{orchestrator.WorkerLeft{Slot: 0}, orchestrator.WorkerLost{Slot: 0, Retired: true, Fault: fault.New(fault.Device, "lost")}} {
		c := NewCollector(newClock().get)
		c.Event(plan(1000, 1))
		c.Event(orchestrator.ChunkStarted{Slot: 0, First: 0, Records: 400})
		c.Event(exit)
		want := c.View().Workers[0].Phase
		c.Event(orchestrator.ChunkDone{Slot: 0, Counts: chunk.Tally{Counts: chunk.Counts{Records: 100, Succeeded: 100}}, Computed: 100, Total: 1000})
		if w := c.View().Workers[0]; w.Phase != want || w.Total != 100 {
			t.Errorf("after %T: %+v, want the phase %s", exit, w, want)
		}
	}
}

// TestWorkersOfAPausedDevice: no worker computes on a device that is paused.
func TestWorkersOfAPausedDevice(t *testing.T) {
	c := NewCollector(newClock().get)
	c.Event(plan(1000, 2))
	for i := range 2 {
		c.Event(orchestrator.ChunkStarted{Slot: i, First: int64(i), Records: 400})
	}
	c.Event(orchestrator.DeviceSample{Device: "GPU 0", State: gpu.Critical, Pace: 0})
	if w := c.View().Workers; w[0].Phase != PhasePaused || w[1].Phase != PhaseComputing {
		t.Errorf("%s and %s, want paused and computing", w[0].Phase, w[1].Phase)
	}
	c.Event(orchestrator.DeviceSample{Device: "GPU 0", State: gpu.Throttled, Pace: 0.5})
	c.Event(orchestrator.Paused{})
	c.Event(orchestrator.ChunkDone{Slot: 1, First: 1, Counts: chunk.Tally{Counts: chunk.Counts{Records: 400}}})
	if w := c.View().Workers; w[0].Phase != PhaseComputing || w[1].Phase != PhasePaused {
		t.Errorf("%s and %s, want computing and paused", w[0].Phase, w[1].Phase)
	}
}

// A worker's phase shows what the start of its kernel does, at first and when it is started again
// in the middle of a chunk.
func TestStartPhases(t *testing.T) {
	clock := newClock()
	c := NewCollector(func() time.Time { return clock.now })
	c.Event(plan(100, 1))
	phase := func(p orchestrator.StartPhase) orchestrator.Event {
		return orchestrator.WorkerPhase{Start: orchestrator.Start{Phase: p}}
	}
	for i, step := range []struct {
		event orchestrator.Event
		want  Phase
	}{
		{orchestrator.WorkerStarted{PID: 1}, PhaseOpening},
		{phase(orchestrator.StartImporting), PhaseImporting},
		{phase(orchestrator.StartLoading), PhaseLoading},
		{phase(orchestrator.StartFirstBatch), PhaseOpening},
		{orchestrator.WorkerReady{}, PhaseWaiting},
		{orchestrator.ChunkStarted{Records: 10}, PhaseFirstBatch},
		{orchestrator.Progress{Records: 10, Total: 100, Awaits: orchestrator.AwaitsFiles}, PhaseFetching},
		{orchestrator.Progress{Records: 10, Total: 100}, PhaseFirstBatch},
		{phase(orchestrator.StartDone), PhaseComputing},
		{phase(orchestrator.StartImporting), PhaseImporting},
		{orchestrator.Progress{Records: 10, Total: 100}, PhaseImporting},
		{phase(orchestrator.StartLoading), PhaseLoading},
		{orchestrator.WorkerLost{Fault: fault.New(fault.Worker, "lost")}, PhaseWaiting},
		{orchestrator.WorkerStarted{PID: 2}, PhaseOpening},
	} {
		c.Event(step.event)
		if got := c.View().Workers[0].Phase; got != step.want {
			t.Errorf("event %d: the phase is %s, want %s", i, got, step.want)
		}
	}
}
