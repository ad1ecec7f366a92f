package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// servedHost is gpurun serve on a simulated machine.
type servedHost struct {
	*sharedHost
	url, token string
	stop       func()
}

// serve starts gpurun serve and waits until it is ready.
func serve(t *testing.T, h *sharedHost, env ...string) *servedHost {
	t.Helper()
	cmd := h.command("serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	url, token, found := strings.Cut(strings.TrimSpace(line), "/#")
	if !found {
		t.Fatalf("gpurun serve printed %q", line)
	}
	s := &servedHost{h, url, token, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("gpurun serve: %v", err)
		}
	}}
	await(t, "gpurun serve to be ready", func() bool { status, _ := s.ask("GET", "/readyz", ""); return status == http.StatusOK })
	return s
}

// ask sends a request with the token.
func (s *servedHost) ask(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	data, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(data)
}

// get reads the data of a successful response.
func (s *servedHost) get(path string, into any) {
	s.t.Helper()
	status, body := s.ask("GET", path, "")
	answer := struct{ Data json.RawMessage }{}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		s.t.Fatalf("%s: %v in %s", path, err, body)
	}
}

// Memory is allocated for a time, others see it, and it is freed when it expires, on
// request, and with the server.
func TestServeLeases(t *testing.T) {
	h := newHost(t, 2)
	s := serve(t, h)
	leases := func() string { return h.gpurun("gpus", "list") }
	allocate := func(id string, mb, gpu int, ttl float64) (int, string) {
		return s.ask("POST", "/api/gpu/memory/allocate", fmt.Sprintf(`{"allocation_id":%q,"required_mb":%d,"gpu_id":%d,"ttl_seconds":%g}`, id, mb, gpu, ttl))
	}
	if status, body := allocate("embedding", 4096, 1, 600); status != http.StatusOK || !strings.Contains(body, `"allocated_mb":4096`) || !strings.Contains(body, `"gpu_id":1`) {
		t.Fatalf("%d %s", status, body)
	}
	if list := leases(); !strings.Contains(list, "embedding") || !strings.Contains(list, "for another 10m") && !strings.Contains(list, "for another 9m") {
		t.Errorf("gpus list: %s", list)
	}
	for name, body := range map[string]string{
		"nothing":           `{"allocation_id":"a","required_mb":0}`,
		"negative":          `{"allocation_id":"a","required_mb":-1}`,
		"no name":           `{"required_mb":1}`,
		"a bad name":        `{"allocation_id":"../x","required_mb":1}`,
		"forever":           `{"allocation_id":"a","required_mb":1,"ttl_seconds":1e12}`,
		"an unknown member": `{"allocation_id":"a","required_mb":1,"gpu":0}`,
		"no JSON":           `{"allocation_id":`,
		"two values":        `{"allocation_id":"a","required_mb":1} {}`,
		"empty":             ``,
	} {
		if status, answer := s.ask("POST", "/api/gpu/memory/allocate", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	for body, want := range map[string]int{
		`{"allocation_id":"embedding","required_mb":1,"gpu_id":1}`: http.StatusConflict,
		`{"allocation_id":"a","required_mb":99999999.0}`:           http.StatusConflict,
		`{"allocation_id":"a","required_mb":1,"gpu_id":7}`:         http.StatusNotFound,
	} {
		if status, answer := s.ask("POST", "/api/gpu/memory/allocate", body); status != want {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, body := s.ask("POST", "/api/gpu/memory/deallocate", `{"allocation_id":"embedding","gpu_id":1}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := s.ask("POST", "/api/gpu/memory/deallocate", `{"allocation_id":"embedding"}`); status != http.StatusNotFound {
		t.Errorf("deallocated twice: %d", status)
	}
	allocate("brief", 100, 0, 0.2)
	await(t, "the lease to expire", func() bool { return !strings.Contains(leases(), "brief") })
	allocate("held", 100, 0, 600)
	if _, text := s.ask("GET", "/metrics", ""); !strings.Contains(text, `gpu_allocation_requests_total{service="embedding",status="success"} 1`) ||
		!strings.Contains(text, `gpu_allocation_requests_total{service="embedding",status="failed"} 1`) || !strings.Contains(text, `gpu_memory_total_mb{UUID="GPU-00000001-0000-4000-8000-000000000000",device="nvidia1"`) {
		t.Error("the requests are not in the metrics")
	}
	h.gpurun("gpus", "allocate", "outside", "100", "--gpu", "0")
	await(t, "the request of another process to be counted", func() bool {
		_, text := s.ask("GET", "/metrics", "")
		return strings.Contains(text, `gpu_allocation_requests_total{service="outside",status="success"} 1`)
	})
	s.stop()
	if list := leases(); strings.Contains(list, "held") {
		t.Errorf("after the server has ended: %s", list)
	}
}

// Where a scheduler has allocated the GPUs, nothing can be leased.
func TestServeUnderScheduler(t *testing.T) {
	s := serve(t, newHost(t, 1), "KUBERNETES_SERVICE_HOST=10.0.0.1")
	defer s.stop()
	if status, body := s.ask("POST", "/api/gpu/memory/allocate", `{"allocation_id":"a","required_mb":1}`); status != http.StatusConflict || !strings.Contains(body, "Kubernetes") {
		t.Errorf("%d %s", status, body)
	}
}

// A server shows and controls a running job, and changes the settings of its monitor; later
// it remembers the job.
func TestServeJob(t *testing.T) {
	h := newHost(t, 2)
	state := h.join("state")
	if err := os.WriteFile(state, []byte("* temperature 55\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "NVMLSTUB_STATE="+state)
	h.start("nightly", patient)
	s := serve(t, h)
	defer s.stop()
	var list struct {
		Jobs []struct {
			Job   struct{ ID, Name string }
			Phase string
			Done  struct{ Records int64 }
		}
	}
	jobs := func() {
		_, body := s.ask("GET", "/api/jobs", "")
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
	}
	await(t, "the job to run", func() bool { jobs(); return len(list.Jobs) == 1 && list.Jobs[0].Phase == "running" })
	id := list.Jobs[0].Job.ID
	if status, body := s.ask("POST", "/api/jobs/"+id+"/pause", "{}"); status != http.StatusOK || !strings.Contains(body, `"phase":"paused"`) {
		t.Errorf("pause: %d %.200s", status, body)
	}
	if status, body := s.ask("GET", "/api/jobs/"+id, ""); status != http.StatusOK || !strings.Contains(body, `"phase":"paused"`) {
		t.Errorf("after the pause: %d %.200s", status, body)
	}
	if status, body := s.ask("POST", "/api/jobs/"+id+"/resume", ""); status != http.StatusOK || !strings.Contains(body, `"phase":"running"`) {
		t.Errorf("resume: %d %.200s", status, body)
	}

	// Settings are checked as a whole, then reach the job's monitor: it throttles.
	if status, body := s.ask("PUT", "/api/gpu/config", `{"temp_throttle":50,"monitor_intervall":1}`); status != http.StatusBadRequest || !strings.Contains(body, "did you mean monitor_interval?") {
		t.Errorf("a misspelled setting: %d %s", status, body)
	}
	var config map[string]any
	s.get("/api/gpu/config", &config)
	if config["temp_throttle"] != 0.0 {
		t.Errorf("half of it was applied: %v", config)
	}
	if status, body := s.ask("PUT", "/api/gpu/config", `{"temp_optimal":20,"temp_normal":30,"temp_throttle":90,"temp_critical":95,"monitor_interval":0.1}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	var throttle struct {
		Should bool    `json:"should_throttle"`
		Speed  float64 `json:"speed_multiplier"`
		GPUs   []struct{ GPU int }
	}
	await(t, "the job to throttle", func() bool {
		s.get("/api/gpu/throttle/status", &throttle)
		return throttle.Should && throttle.Speed == 0.5 && len(throttle.GPUs) == 2
	})
	var trend struct {
		Samples int     `json:"sample_count"`
		Current float64 `json:"current_temp"`
		Trend   string
	}
	await(t, "a trend", func() bool { s.get("/api/gpu/temperature/trend?gpu_id=1&duration=1", &trend); return trend.Samples > 3 })
	if trend.Current != 55 || trend.Trend != "stable" {
		t.Errorf("%+v", trend)
	}

	// Stopping to record ends the history, and only that.
	s.ask("POST", "/api/gpu/monitoring/stop", "{}")
	var history, later struct{ Count int }
	s.get("/api/gpu/metrics/history?limit=100000", &history)
	time.Sleep(500 * time.Millisecond)
	s.get("/api/gpu/metrics/history?limit=100000", &later)
	s.get("/api/gpu/throttle/status", &throttle)
	if later.Count != history.Count || !throttle.Should {
		t.Errorf("%d readings, then %d; throttled: %v", history.Count, later.Count, throttle.Should)
	}
	s.ask("POST", "/api/gpu/monitoring/start", "{}")
	await(t, "the history to go on", func() bool {
		s.get("/api/gpu/metrics/history?limit=100000", &later)
		return later.Count > history.Count
	})

	if _, text := s.ask("GET", "/metrics", ""); !strings.Contains(text, "gpurun_records_total{job_id=\""+id+"\"") {
		t.Error("the job is not in the metrics")
	}
	if err := os.WriteFile(h.join("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	s.ask("PUT", "/api/gpu/config", `{"temp_normal":90}`) // or it takes long
	if code := h.wait("nightly"); code != 0 {
		t.Fatalf("status %d: %s", code, h.said("nightly"))
	}
	await(t, "the job to be a past one", func() bool { jobs(); return len(list.Jobs) == 1 && list.Jobs[0].Phase == "ended" })
	status, body := s.ask("GET", "/api/jobs/"+id, "")
	var past struct {
		Done   struct{ Records int64 }
		Report *struct{ Succeeded int64 }
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&past); err != nil || status != http.StatusOK || past.Done.Records != 2000 || past.Report == nil || past.Report.Succeeded != 2000 {
		t.Errorf("%d %s", status, body)
	}
	for path, want := range map[string]int{"/history": 200, "/failures": 200, "/events": 409, "/pause": 409} {
		method := "GET"
		if path == "/pause" {
			method = "POST"
		}
		if status, body := s.ask(method, "/api/jobs/"+id+path, ""); status != want {
			t.Errorf("%s of a past job: %d %s", path, status, body)
		}
	}
}
