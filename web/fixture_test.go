//go:build browser

package web_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/web"
)

// fixture is a job whose events are made up, as large and as awkward as jobs get.
type fixture struct {
	gpus, workers int
	hours         int
	total         int64
	failures      []orchestrator.ChunkDone
	name          string
	figures       map[string]float64
	end           *orchestrator.Report
}

const longName = "wikipedia-2026-10-en-articles-multistream-normalized-and-deduplicated-embeddings-e5-large-v2-part-000017-of-000128.jsonl"

// failing is a segment with failed records of one cause.
func failing(line, n int64, message string) orchestrator.ChunkDone {
	detail := "Traceback (most recent call last):\n  File \"/home/ana/embed.py\", line 41, in process\n    raise " + message
	tally := chunk.FailureTally("batch", chunk.KindStats{Example: message, Detail: detail, Line: line})
	for range n - 1 {
		tally.Add(chunk.FailureTally("batch", chunk.KindStats{Example: message, Line: line + 100}))
	}
	tally.Records, tally.Failed = n, n
	return orchestrator.ChunkDone{Device: "GPU 0", Counts: tally, Stats: orchestrator.SegmentStats{Retries: 3}}
}

// collect returns a collector that has seen the job's events, a sample every ten seconds.
func (f fixture) collect() *view.Collector {
	now := time.Now().Add(-time.Duration(f.hours) * time.Hour)
	c := view.NewCollector(func() time.Time { return now })
	plan := orchestrator.Plan{Records: f.total, BatchSize: 64}
	for g := range max(1, f.gpus) {
		device := gpu.Device{Kind: gpu.GPU, Index: g, Name: "NVIDIA H200 141GB HBM3e", UUID: fmt.Sprint("GPU-", g)}
		if f.gpus == 0 {
			device = gpu.Device{Kind: gpu.CPU, Name: "CPU"}
		}
		for w := range f.workers {
			name := device.String()
			if w > 0 {
				name += fmt.Sprint(" #", w+1)
			}
			plan.Slots = append(plan.Slots, orchestrator.Slot{Number: len(plan.Slots), Name: name, Devices: []gpu.Device{device}})
		}
	}
	if f.total == 0 {
		return c // it has not been planned yet
	}
	c.Event(orchestrator.Planned{Plan: plan})
	for i, s := range plan.Slots {
		c.Event(orchestrator.WorkerStarted{Slot: i, Device: s.Name, PID: 4711 + i})
		c.Event(orchestrator.WorkerReady{Slot: i, Device: s.Name, Took: 12 * time.Second})
	}
	var done chunk.Counts
	steps, first := f.hours*360, int64(0)
	all := f.total
	if all < 0 {
		all = 12_000_000
	}
	size := all * 7 / 10 / int64(steps) / int64(len(plan.Slots))
	for step := range steps {
		now = now.Add(10 * time.Second)
		for i, s := range plan.Slots {
			c.Event(orchestrator.ChunkStarted{Slot: i, Device: s.Name, First: first, Records: size})
			if step == steps-1 { // still computing
				done.Records += size * int64(i%4) / 4
				c.Event(orchestrator.Progress{Slot: i, Device: s.Name, Chunk: chunk.Counts{Records: size * int64(i%4) / 4}, Records: size, Computed: int64(step)*size + size*int64(i%4)/4, Job: done, Total: f.total})
				first += size
				continue
			}
			segment := orchestrator.ChunkDone{Slot: i, Device: s.Name, First: first, Counts: chunk.Tally{Counts: chunk.Counts{Records: size, Succeeded: size}}}
			if n := step / 40; i == 0 && step%40 == 7 && n < len(f.failures) {
				segment.Counts = f.failures[n].Counts
				segment.Counts.Records, segment.Counts.Succeeded, segment.Stats = size, size-segment.Counts.Failed, f.failures[n].Stats
			}
			done.Add(segment.Counts.Counts)
			first += size
			segment.Job, segment.Total, segment.Computed = done, f.total, int64(step+1)*size
			segment.Stats.Figures = f.figures
			c.Event(segment)
		}
		f.sample(c, step)
	}
	if f.end != nil {
		f.end.Started, f.end.In, f.end.Failed = now.Add(-time.Hour), f.total, done.Failed
		c.Event(orchestrator.Finished{Report: *f.end})
	}
	return c
}

// sample reports the GPUs: one is hot, one is paused, one lowers its clocks, one is not readable.
func (f fixture) sample(c *view.Collector, step int) {
	for g := range f.gpus {
		heat := 38 + 26*(1-math.Exp(-float64(step)/40)) + 2*math.Sin(float64(step)/9+float64(g))
		s := orchestrator.DeviceSample{
			Device: gpu.Device{Kind: gpu.GPU, Index: g}.String(), State: gpu.Optimal, Pace: 1, Sample: gpu.Sample{Utilization: gpu.Some(97),
				Memory: gpu.Some(gpu.Memory{Total: 141 << 30, Used: uint64(90+g) << 30}), Power: gpu.Some(gpu.Watt(500 + 20*math.Sin(float64(step)/5)))},
		}
		if g == 5 && step > 100 {
			s.State, s.Pace, heat = gpu.Throttled, 0.5, heat+20
			if step == 101 {
				c.Event(orchestrator.DeviceEvent{Kind: gpu.Throttle, Device: s.Device, Pace: 0.5, Temperature: gpu.Some(84)})
			}
		}
		switch {
		case g == 4 && step == f.hours*360-1:
			s.State, s.Pace, heat = gpu.Critical, 0, 88
			for _, kind := range []gpu.EventKind{gpu.StateChange, gpu.Throttle, gpu.BecameCritical} {
				c.Event(orchestrator.DeviceEvent{Kind: kind, Device: s.Device, Temperature: gpu.Some(88)})
			}
		case g == 6:
			s.State, s.Throttle = gpu.Normal, gpu.Some(gpu.Reasons(1|1<<2))
		}
		s.Temperature = gpu.Some(int(heat))
		if g == 7 {
			s.State, s.Temperature, s.Problem = gpu.Unavailable, gpu.Optional[int]{}, "the driver did not answer for 12 s: nvmlDeviceGetTemperature hangs"
		}
		c.Event(s)
		if g == 3 && step == 200 {
			c.Event(orchestrator.WorkerLost{Slot: 3 * f.workers, Device: "GPU 3", Fault: fault.New(fault.Crash, "the kernel was killed by signal 9 (out of memory?)")})
		}
	}
}

// serve serves the page and the fixture's API, as gpurun run --listen does.
func (f fixture) serve(t *testing.T) string {
	t.Helper()
	c := f.collect()
	state, err := json.Marshal(c.View())
	if err != nil {
		t.Fatal(err)
	}
	name := longName
	if f.name != "" {
		name = f.name
	}
	info := fmt.Sprintf(`{"id":"3fa9c201","pid":4242,"kernel":"/home/ana/kernels/embed.py","input":"/data/%s","output":"/out/%s","started":"2026-11-16T01:00:00Z"}`, name, name)
	job := fmt.Sprintf(`{"job":%s,%s`, info, state[1:])
	history, err := json.Marshal(c.History())
	if err != nil {
		t.Fatal(err)
	}
	return serveFixture(t, map[string]string{
		"/api/jobs": `{"jobs":[` + job + `]}`, "/api/jobs/3fa9c201": job, "/api/jobs/3fa9c201/history": string(history),
		"/api/jobs/3fa9c201/failures": `{"failures":[],"next":"0","more":false}`, "/api/system/status": `{"success":true,"data":{"overview":null}}`,
	})
}

func serveFixture(t *testing.T, answers map[string]string) string {
	t.Helper()
	page := web.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/") {
			page.ServeHTTP(w, r)
			return
		}
		text, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
