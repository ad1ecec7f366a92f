package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// servedGPU is a GPU in /api/gpu/status/all.
type servedGPU struct {
	ID         any `json:"gpu_id"`
	UUID       string
	State      string
	Thresholds map[string]int
	Message    string
	Throttling struct {
		Speed float64 `json:"speed_multiplier"`
	}
	Memory struct {
		Allocation *struct {
			Allocated float64 `json:"allocated_mb"`
			Count     int     `json:"allocation_count"`
		} `json:"allocation_stats"`
	}
}

func (s *servedHost) gpus() []servedGPU {
	s.t.Helper()
	var all struct{ GPUs []servedGPU }
	s.get("/api/gpu/status/all", &all)
	return all.GPUs
}

// put changes settings.
func (s *servedHost) put(body string) {
	s.t.Helper()
	if status, answer := s.ask("PUT", "/api/gpu/config", body); status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", body, status, answer)
	}
}

// drive makes a file of sensor values control the machine.
func (h *sharedHost) drive(values ...string) (set func(values ...string)) {
	h.t.Helper()
	state := h.join("state")
	set = func(values ...string) {
		h.t.Helper()
		if err := os.WriteFile(state+".new", []byte(strings.Join(values, "\n")+"\n"), 0o666); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Rename(state+".new", state); err != nil {
			h.t.Fatal(err)
		}
	}
	set(values...)
	h.env = append(h.env, "NVMLSTUB_STATE="+state)
	return set
}

// gpurun serve judges GPUs as a job does: a hot one that cools down, or can no longer be read,
// stays slowed, memory alone does not pause one, and settings apply.
func TestServeJudgesGPUsAsAJobDoes(t *testing.T) {
	h := newHost(t, 3)
	set := h.drive("0 temperature 88", "1 temperature 88", "2 used 81000")
	s := serve(t, h)
	defer s.stop()
	s.put(`{"monitor_interval":0.1}`)
	all := s.gpus()
	for i, want := range []float64{0, 0, 0.5} {
		if g := all[i]; g.State != "CRITICAL" || g.Throttling.Speed != want {
			t.Errorf("GPU %d: %s at %v, want CRITICAL at %v", i, g.State, g.Throttling.Speed, want)
		}
	}
	if got := fmt.Sprint(all[0].Thresholds); got != "map[temp_critical:89 temp_normal:79 temp_optimal:69 temp_throttle:85]" {
		t.Errorf("thresholds: %s", got)
	}
	readings := func() int {
		var history struct{ Count int }
		s.get("/api/gpu/metrics/history?limit=100000&gpu_id=0", &history)
		return history.Count
	}
	set("0 nvmlDeviceGetTemperature error 999", "1 temperature 60", "2 used 81000", "2 temperature 0")
	before := readings()
	await(t, "more readings", func() bool { return readings() > before+5 })
	for i, g := range s.gpus() {
		if want := []float64{0, 0, 0.5}[i]; g.Throttling.Speed != want {
			t.Errorf("later, GPU %d: %s at %v, want %v", i, g.State, g.Throttling.Speed, want)
		}
	}
	if got := s.gpus()[2].Message; !strings.Contains(got, "the driver reports 0°C") {
		t.Errorf("an implausible temperature: %q", got)
	}
	s.put(`{"critical_pause_seconds":0,"throttle_cooldown_seconds":0}`)
	await(t, "the cool GPU to run", func() bool { return s.gpus()[1].Throttling.Speed == 1 })
	if g := s.gpus()[0]; g.Throttling.Speed != 0.5 || g.State != "UNAVAILABLE" {
		t.Errorf("the unreadable GPU: %+v", g)
	}
	s.put(`{"temp_optimal":20,"temp_normal":30,"temp_throttle":95,"temp_critical":96}`)
	await(t, "the settings to apply", func() bool { g := s.gpus()[1]; return g.State == "THROTTLED" && g.Thresholds["temp_normal"] == 30 })
}

// A GPU that does not report its UUID keeps its state and its history, and cannot be leased.
func TestServeUnreadableUUID(t *testing.T) {
	h := newHost(t, 2)
	set := h.drive("1 temperature 88")
	s := serve(t, h)
	defer s.stop()
	s.put(`{"monitor_interval":0.1}`)
	set("1 temperature 60", "1 nvmlDeviceGetUUID error 999")
	await(t, "the UUID to be missing", func() bool { return s.gpus()[1].UUID == "" })
	if g := s.gpus()[1]; g.State != "CRITICAL" || g.Throttling.Speed != 0 {
		t.Errorf("%+v", g)
	}
	var history struct{ Metrics []struct{ UUID string } }
	s.get("/api/gpu/metrics/history?limit=100000&gpu_id=1", &history)
	if len(history.Metrics) == 0 || history.Metrics[0].UUID == "" {
		t.Errorf("the history is gone: %+v", history)
	}
	if status, body := s.ask("POST", "/api/gpu/memory/allocate", `{"allocation_id":"a","required_mb":1,"gpu_id":1}`); status == http.StatusOK || !strings.Contains(body, "does not report its UUID") {
		t.Errorf("%d %s", status, body)
	}
}

// A MIG instance is never taken for the GPU with the same index, and can be named by its UUID.
func TestServeMIG(t *testing.T) {
	h := newHost(t, 3)
	h.drive("2 mig 2")
	s := serve(t, h)
	defer s.stop()
	var ids []string
	for _, g := range s.gpus() {
		ids = append(ids, fmt.Sprintf("%v=%s", g.ID, g.UUID[:17]))
	}
	if got := strings.Join(ids, " "); got != "0=GPU-00000000-0000 1=GPU-00000001-0000 2:0=MIG-00000002-0000 2:1=MIG-00000002-0001" {
		t.Errorf("gpu_ids: %s", got)
	}
	instance := s.gpus()[3]
	for _, id := range []string{"2:1", instance.UUID} {
		var one servedGPU
		if s.get("/api/gpu/status?gpu_id="+id, &one); one.UUID != instance.UUID {
			t.Errorf("%s: %+v", id, one)
		}
		if status, body := s.ask("POST", "/api/gpu/memory/allocate", fmt.Sprintf(`{"allocation_id":"a","required_mb":100,"gpu_id":%q}`, id)); status != http.StatusOK || !strings.Contains(body, `"gpu_id":"2:1"`) {
			t.Errorf("allocate on %s: %d %s", id, status, body)
		}
		if status, body := s.ask("POST", "/api/gpu/memory/deallocate", `{"allocation_id":"a","gpu_id":"2:0"}`); status != http.StatusNotFound {
			t.Errorf("deallocate on another instance: %d %s", status, body)
		}
		if status, body := s.ask("POST", "/api/gpu/memory/deallocate", fmt.Sprintf(`{"allocation_id":"a","gpu_id":%q}`, id)); status != http.StatusOK || !strings.Contains(body, `"gpu_id":"2:1"`) {
			t.Errorf("deallocate on %s: %d %s", id, status, body)
		}
	}
	if status, body := s.ask("GET", "/api/gpu/status?gpu_id=2", ""); status != http.StatusNotFound || !strings.Contains(body, "only 0, 1, 2:0 and 2:1") {
		t.Errorf("%d %s", status, body)
	}
	_, text := s.ask("GET", "/metrics", "")
	for _, labels := range []string{
		`gpu_memory_total_mb{UUID="` + instance.UUID + `",device="nvidia2:1",gpu="2:1",`, `gpu_memory_total_mb{UUID="GPU-00000001-0000-4000-8000-000000000000",device="nvidia1",gpu="1",`,
	} {
		if strings.Count(text, labels) != 1 {
			t.Errorf("metrics without %s", labels)
		}
	}
}

// What gpus allocate leases by its id, gpus deallocate releases by its id, and nothing else.
func TestLeaseOfAMIGInstanceByItsID(t *testing.T) {
	h := newHost(t, 3)
	h.drive("2 mig 2")
	h.gpurun("gpus", "allocate", "a", "100", "--gpu", "2:0")
	h.gpurun("gpus", "allocate", "a", "100", "--gpu", "2:1")
	h.gpurun("gpus", "deallocate", "a", "2:0")
	if list := h.gpurun("gpus", "list"); strings.Contains(list, "MIG 2:0") || !strings.Contains(list, "MIG 2:1") {
		t.Error(list)
	}
}

// Whoever asks after an allocation sees it, however rarely the GPUs are read.
func TestServeShowsAllocationsAtOnce(t *testing.T) {
	h := newHost(t, 1)
	s := serve(t, h)
	defer s.stop()
	s.put(`{"monitor_interval":3600}`)
	s.gpus()
	check := func(what string, mb float64) {
		t.Helper()
		a := s.gpus()[0].Memory.Allocation
		_, text := s.ask("GET", "/metrics", "")
		var system struct {
			Overview struct{ Leases []struct{ Name string } }
		}
		s.get("/api/system/status", &system)
		leases := system.Overview.Leases
		if a == nil || a.Allocated != mb || len(leases) != a.Count || !strings.Contains(text, fmt.Sprintf("modelName=\"NVIDIA Stub\"} %g\n", mb)) {
			t.Errorf("%s: %+v, leases %v", what, a, leases)
		}
	}
	for i := range 3 {
		if status, body := s.ask("POST", "/api/gpu/memory/allocate", `{"allocation_id":"a","required_mb":4096}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		check(fmt.Sprint("allocated ", i), 4096)
		s.ask("POST", "/api/gpu/memory/deallocate", `{"allocation_id":"a"}`)
		check(fmt.Sprint("deallocated ", i), 0)
	}
	h.gpurun("gpus", "allocate", "outside", "100")
	await(t, "the lease of another process", func() bool { return s.gpus()[0].Memory.Allocation.Allocated == 100 })
}

// Settings that a job refuses are an error, which names the job.
func TestServeReportsAJobThatRefusesSettings(t *testing.T) {
	h := newHost(t, 1)
	if err := os.WriteFile(h.join("monitor.yaml"), []byte("temp_normal: 70\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	h.start("nightly", patient, "--monitor-config", "monitor.yaml")
	s := serve(t, h)
	defer s.stop()
	await(t, "the job to run", func() bool {
		_, body := s.ask("GET", "/api/jobs", "")
		return strings.Contains(body, `"phase":"running"`)
	})
	status, body := s.ask("PUT", "/api/gpu/config", `{"temp_optimal":72}`)
	if status != http.StatusConflict || !strings.Contains(body, "temp_normal (70) is below temp_optimal (72): thresholds must increase") || strings.Contains(body, `\"`) {
		t.Errorf("%d %s", status, body)
	}
	s.put(`{"temp_optimal":60}`)
	if err := os.WriteFile(h.join("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if code := h.wait("nightly"); code != 0 {
		t.Errorf("status %d: %s", code, h.said("nightly"))
	}
}
