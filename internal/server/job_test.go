package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/httpserve"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef"

// controlled is a job that records how it is controlled, and emits what a job would.
type controlled struct {
	job *Job

	mu       sync.Mutex
	paused   bool
	canceled int
}

// follow takes an event as a job's process does.
func (j *Job) follow(e orchestrator.Event) {
	j.view.Event(e)
	j.Event(e)
}

func (c *controlled) Pause() bool {
	c.set(true)
	c.job.follow(orchestrator.Paused{})
	return true
}

func (c *controlled) Resume() bool {
	c.set(false)
	c.job.follow(orchestrator.Resumed{})
	return true
}

func (c *controlled) set(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
}

func (c *controlled) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.canceled++
}

func (c *controlled) MonitorSettings() map[string]any { return gpu.DefaultConfig().Settings() }

func (c *controlled) ConfigureMonitor(changes map[string]any) error {
	_, err := gpu.DefaultConfig().With(changes)
	return err
}

func (c *controlled) Trim(context.Context) []orchestrator.Trimmed { return nil }

// changed reports whether anything was done to the job.
func (c *controlled) changed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused || c.canceled > 0
}

// planned is a job of 100 records on two GPUs.
func planned() orchestrator.Planned {
	return orchestrator.Planned{Plan: orchestrator.Plan{Records: 100, BatchSize: 10, Slots: []orchestrator.Slot{
		{Number: 0, Name: "GPU 0", Devices: []gpu.Device{{Kind: gpu.GPU, Index: 0, UUID: "GPU-0", Name: "NVIDIA H200"}}},
		{Number: 1, Name: "GPU 1", Devices: []gpu.Device{{Kind: gpu.GPU, Index: 1, UUID: "GPU-1", Name: "NVIDIA H200"}}},
	}}}
}

// testServer is a job served on a real loopback socket.
type testServer struct {
	t       *testing.T
	address string
	job     *Job
	control *controlled
	client  *http.Client
}

func serveJob(t *testing.T, access Access) *testServer {
	t.Helper()
	control := &controlled{}
	job := NewJob(jobs.Entry{Info: jobs.Info{ID: "3fa9c201", Kernel: "echo"}}, control, view.NewCollector(time.Now))
	control.job = job
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := httpserve.Serve(l, 64, New(access, job, metrics.New(job.Metrics())))
	s := &testServer{t: t, address: l.Addr().String(), job: job, control: control, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() { job.Close(); end(); s.client.CloseIdleConnections() })
	return s
}

// do sends a request with the token and returns the response and its body.
func (s *testServer) do(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// get reads JSON.
func (s *testServer) get(path string, into any) {
	s.t.Helper()
	status, body := s.do("GET", path, "")
	if err := json.Unmarshal([]byte(body), into); err != nil || status != http.StatusOK {
		s.t.Fatalf("%s: %d %s %v", path, status, body, err)
	}
}

func TestJobState(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	latency := orchestrator.Histogram{}
	latency.Add(20 * time.Millisecond)
	tally := chunk.Tally{Counts: chunk.Counts{Records: 10, Succeeded: 8, Failed: 2}}
	tally.Kinds = map[string]chunk.KindStats{"batch": {Count: 2, Example: "bad", Line: 7, Detail: "Traceback"}}
	tally.Causes = map[string]chunk.KindStats{"batch: bad": {Count: 2, Example: "bad", Line: 7}}
	for _, e := range []orchestrator.Event{
		planned(), orchestrator.WorkerStarted{Slot: 0, PID: 7}, orchestrator.WorkerReady{Slot: 0, Took: time.Second},
		orchestrator.ChunkStarted{Slot: 0, First: 50, Records: 10},
		orchestrator.ChunkDone{Slot: 0, First: 50, Counts: tally, Job: tally.Counts, Total: 100, Stats: orchestrator.SegmentStats{
			Batches: 1, Restarts: 1, Figures: map[string]float64{"tokens": 40}, Latency: &latency}},
		orchestrator.ChunkStarted{Slot: 1, First: 0, Records: 20},
		orchestrator.Progress{Slot: 1, Chunk: chunk.Counts{Records: 5}, Computed: 5, Records: 20, Job: chunk.Counts{Records: 15, Succeeded: 13, Failed: 2}, Total: 100},
		orchestrator.DeviceSample{Device: "GPU 1", State: gpu.Throttled, Pace: 0.5, Sample: gpu.Sample{Temperature: gpu.Some(81), PowerLimit: gpu.Some(gpu.Watt(400)), Throttle: gpu.Some(gpu.Reasons(1 << 2))}},
	} {
		s.job.follow(e)
	}
	var state jobs.State
	s.get("/api/jobs/3fa9c201", &state)
	if state.Phase != view.PhaseRunning || state.Done.Records != 15 || state.Total != 100 || state.Latency.Batches != 1 {
		t.Errorf("%+v", state)
	}
	if f := state.Failures; len(f) != 1 || f[0].Count != 2 || f[0].Detail != "Traceback" || state.FailuresByKind["batch"] != 2 {
		t.Errorf("failures: %+v", f)
	}
	if d := state.Devices[1]; d.State != "THROTTLED" || d.Temperature.Or(0) != 81 || d.Records != 5 {
		t.Errorf("device: %+v", d)
	}
	sum := func(cells []int64) (n int64) {
		for _, c := range cells {
			n += c
		}
		return n
	}
	if st := state.Strip; sum(st.Done) != 15 || sum(st.Failed) != 2 || sum(st.Running) != 15 || st.Size != 1 || st.Done[50] != 1 || st.Running[5] != 1 {
		t.Errorf("strip: %+v", st)
	}
	_, text := s.do("GET", "/metrics", "")
	for _, want := range []string{
		`gpurun_records_total{job_id="3fa9c201",verdict="failed"} 2`, `gpurun_tokens_total{job_id="3fa9c201"} 40`,
		`gpu_temperature_celsius{UUID="GPU-1",device="nvidia1",gpu="1",modelName="NVIDIA H200"} 81`,
		`gpurun_pace{UUID="GPU-1",device="nvidia1",gpu="1",job_id="3fa9c201",modelName="NVIDIA H200"} 0.5`,
		`gpu_operation_latency_seconds_count{UUID="GPU-0",device="nvidia0",gpu="0",job_id="3fa9c201",modelName="NVIDIA H200"} 1`,
		`gpurun_kernel_restarts_total{job_id="3fa9c201"} 1`, `gpurun_queue_records{job_id="3fa9c201"} 70`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	for reason, want := range map[string]string{"sw_power_cap": "1", "hw_thermal_slowdown": "0"} {
		if !regexp.MustCompile(`gpurun_gpu_clocks_lowered\{.*reason="` + reason + `".*\} ` + want + `\n`).MatchString(text) {
			t.Errorf("clocks_lowered for %s is not %s", reason, want)
		}
	}
	if !regexp.MustCompile(`gpu_power_limit_watts\{.*\} 400\n`).MatchString(text) {
		t.Error("no power limit in the metrics")
	}
}

func TestSteer(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	s.job.follow(planned())
	for _, step := range []struct {
		path string
		want view.Phase
	}{{"pause", view.PhasePaused}, {"resume", view.PhaseRunning}, {"cancel", view.PhaseRunning}} {
		status, body := s.do("POST", "/api/jobs/3fa9c201/"+step.path, "")
		var state jobs.State
		if err := json.Unmarshal([]byte(body), &state); err != nil || status != http.StatusOK || state.Phase != step.want {
			t.Errorf("%s: %d %q, want %q", step.path, status, state.Phase, step.want)
		}
	}
	if s.control.canceled != 1 {
		t.Errorf("canceled %d times", s.control.canceled)
	}
}

// readEvents reads n events of a stream and returns their names and the last id.
func (s *testServer) readEvents(last string, n int) (names []string, id string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+s.address+"/api/jobs/3fa9c201/events", nil)
	r.Header.Set("Last-Event-ID", last)
	response, err := s.client.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%v %v", response, err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for len(names) < n && lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = text
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var e struct{ Event string }
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				s.t.Fatalf("%s: %v", data, err)
			}
			names = append(names, e.Event)
		}
	}
	return names, id
}

// A client that reconnects gets each event once; one with the id of another run gets all.
func TestEventsReplay(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	s.job.follow(planned())
	s.job.follow(orchestrator.Notice{Text: "a"})
	names, id := s.readEvents("", 2)
	if fmt.Sprint(names) != "[planned notice]" || id != "3fa9c201-2" {
		t.Fatalf("%v %s", names, id)
	}
	for range 50 { // only the last of these matters
		s.job.follow(orchestrator.Progress{Slot: 1})
	}
	s.job.follow(orchestrator.Paused{})
	if names, _ := s.readEvents(id, 2); fmt.Sprint(names) != "[progress paused]" {
		t.Errorf("after %s: %v", id, names)
	}
	if names, _ := s.readEvents("00000000-52", 4); fmt.Sprint(names) != "[planned notice progress paused]" {
		t.Errorf("after another run: %v", names)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		s.job.follow(orchestrator.Resumed{})
	}()
	if names, _ := s.readEvents("3fa9c201-53", 1); fmt.Sprint(names) != "[resumed]" {
		t.Errorf("live: %v", names)
	}
}

// A listener that does not read delays neither the job nor other listeners.
func TestSlowListener(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	s.job.follow(planned())
	for range 5 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/jobs/3fa9c201/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	text := strings.Repeat("x", 8<<10)
	for range keptEvents { // far more than a socket buffers
		s.job.follow(orchestrator.Notice{Text: text})
	}
	s.job.follow(orchestrator.Paused{})
	if names, _ := s.readEvents(fmt.Sprintf("3fa9c201-%d", keptEvents+1), 1); fmt.Sprint(names) != "[paused]" {
		t.Errorf("%v", names)
	}
}

// The number of listeners is limited, so that other requests get through.
func TestTooManyListeners(t *testing.T) {
	f := NewFeed("x")
	for range maxListeners {
		f.listeners <- struct{}{}
	}
	answer := httptest.NewRecorder()
	f.serve(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("%d", answer.Code)
	}
}

// Memory is bounded: a feed and a view do not grow with events.
func TestFeedIsBounded(t *testing.T) {
	f := NewFeed("x")
	for i := range 5 * keptEvents {
		f.Event(orchestrator.Notice{})
		f.Event(orchestrator.ChunkDone{})
		f.Event(orchestrator.Progress{Slot: i % 8})
	}
	entries := f.since(0)
	if len(entries) != 2*keptEvents+8 {
		t.Errorf("%d events are kept", len(entries))
	}
}

func TestFailuresPages(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	plan := planned()
	plan.Folder = t.TempDir()
	s.job.follow(plan)
	t.Cleanup(func() { s.job.follow(orchestrator.Finished{}) })
	path := filepath.Join(plan.Folder, "failures.jsonl")
	var page Page
	s.get("/api/jobs/3fa9c201/failures", &page)
	if len(page.Failures) != 0 || page.More {
		t.Errorf("no failures yet: %+v", page)
	}
	var lines strings.Builder
	for i := range 7 {
		fmt.Fprintf(&lines, `{"at":%16d,"record":%d}`+"\n", i, i)
	}
	lines.WriteString(`{"at":   `) // is being written
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	seen, next := 0, "0"
	for more := true; more; {
		var page Page
		s.get("/api/jobs/3fa9c201/failures?limit=3&after="+next, &page)
		for _, f := range page.Failures {
			if !strings.Contains(string(f), fmt.Sprintf(`"record":%d`, seen)) {
				t.Errorf("%s is number %d", f, seen)
			}
			seen++
		}
		more = page.More && len(page.Failures) > 0
		next = page.Next
	}
	if seen != 7 {
		t.Errorf("%d failures", seen)
	}
	for query, want := range map[string]int{"after=3": 404, "after=999999": 404, "after=-1": 400, "after=x": 400, "after=": 400, "limit=0": 400, "limit=100000": 400, "limit=x": 400, "limit=": 400} {
		if status, body := s.do("GET", "/api/jobs/3fa9c201/failures?"+query, ""); status != want {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}

// eightGPUs is the beginning of a job on eight GPUs, with a sample of each.
func eightGPUs() (events []orchestrator.Event) {
	var plan orchestrator.Plan
	var latency orchestrator.Histogram
	for i := range 100 {
		latency.Add(time.Duration(i) * time.Millisecond)
	}
	for i := range 8 {
		d := gpu.Device{Kind: gpu.GPU, Index: i, UUID: fmt.Sprint("GPU-", i), Name: "NVIDIA H200"}
		plan.Slots = append(plan.Slots, orchestrator.Slot{Number: i, Name: d.String(), Devices: []gpu.Device{d}})
		events = append(events, orchestrator.Progress{Slot: i, Latency: &latency}, orchestrator.DeviceSample{
			Device: d.String(), State: gpu.Optimal, Pace: 1, Sample: gpu.Sample{Temperature: gpu.Some(60), Utilization: gpu.Some(90),
				Memory: gpu.Some(gpu.Memory{Total: 1 << 37, Used: 1 << 36, Free: 1 << 36}), Power: gpu.Some(gpu.Watt(400))},
		})
	}
	return append([]orchestrator.Event{orchestrator.Planned{Plan: plan}}, events...)
}

// A job's server has the API of GPUs too, for those of the job.
func TestGPUsOfJob(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	s.job.follow(planned())
	sample := orchestrator.DeviceSample{Device: "GPU 1", State: gpu.Throttled, Pace: 0.5, Sample: gpu.Sample{Temperature: gpu.Some(80), Slowdown: gpu.Some(90),
		Memory: gpu.Some(gpu.Memory{Total: 4 << 20, Used: 1 << 20, Free: 3 << 20})}}
	s.job.follow(sample)
	s.do("POST", "/api/gpu/monitoring/stop", "")
	s.job.follow(sample)
	s.do("POST", "/api/gpu/monitoring/start", "")
	sample.Temperature = gpu.Some(84)
	s.job.follow(sample)
	for path, want := range map[string]string{
		"status":              `"throttling":{"should_throttle":true,"is_throttled":true,"speed_multiplier":0.5,"current_state":"THROTTLED"}`,
		"status?gpu_id=1":     `"gpu_id":1,"uuid":"GPU-1","name":"NVIDIA H200"`,
		"status/all":          `"gpu_count":1`,
		"metrics":             `"temperature_celsius":84`,
		"metrics/history":     `"count":2`,
		"temperature/trend":   `"sample_count":2,"current_temp":84,"min_temp":80,"max_temp":84,"avg_temp":82,"trend":"rising","is_stable":false`,
		"throttle/status":     `"speed_multiplier":0.5,"current_state":"THROTTLED","gpus":[{"gpu_id":1,`,
		"memory/available":    `{"gpu_id":1,"available_mb":3}`,
		"../system/status":    `"gpu":{"gpu_count":1,`,
		"status?gpu_id=GPU-0": `only 1"`,
	} {
		if _, body := s.do("GET", "/api/"+strings.TrimPrefix("gpu/"+path, "gpu/../"), ""); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
	if status, body := s.do("POST", "/api/gpu/memory/allocate", `{"allocation_id":"a","required_mb":1}`); status != http.StatusConflict || !strings.Contains(body, "leases nothing") {
		t.Errorf("%d %s", status, body)
	}
}
