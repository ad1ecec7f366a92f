package gpu

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// driverFaults are driver faults that affect GPU 0 of two, through the real binding.
var driverFaults = []struct {
	name   string
	faults string
	// problem is what the monitor reports for GPU 0 ("": it does not notice), status what
	// Look reports ("": the GPU is visible), found which GPUs an inventory has.
	problem, status, found string
	brief                  bool // Look must not wait long
}{
	{
		name: "temperature fails", faults: "0 nvmlDeviceGetTemperature error 999",
		problem: "its temperature cannot be read: unknown error", status: "its temperature cannot be read: unknown error", found: "0,1",
	},
	{
		name: "temperature not supported any more", faults: "0 temperature unsupported",
		problem: "the driver no longer reports its temperature", found: "0,1",
	},
	{
		name: "temperature hangs", faults: "0 nvmlDeviceGetTemperature hang",
		problem: "the NVIDIA driver does not answer", status: "the NVIDIA driver does not answer", found: "0,1", brief: true,
	},
	{
		name: "utilization hangs", faults: "0 nvmlDeviceGetUtilizationRates hang",
		problem: "the NVIDIA driver does not answer", status: "the NVIDIA driver does not answer", found: "0,1", brief: true,
	},
	{
		name: "process list hangs", faults: "0 nvmlDeviceGetComputeRunningProcesses hang",
		problem: "the NVIDIA driver does not answer", status: "the NVIDIA driver does not answer", found: "0,1", brief: true,
	},
	{
		name: "every sensor fails", faults: "0 nvmlDeviceGetT* error 999\n0 nvmlDeviceGetP* error 999\n0 nvmlDeviceGetM* error 999\n0 nvmlDeviceGetC* error 999",
		problem: "its temperature cannot be read: unknown error", status: "its temperature cannot be read: unknown error", found: "0,1",
	},
	{
		name: "UUID fails", faults: "0 nvmlDeviceGetUUID error 999",
		found: "0,1",
	},
	{
		name: "memory fails", faults: "0 nvmlDeviceGetMemoryInfo* error 999\n0 nvmlDeviceGetTemperature error 999",
		problem: "its temperature cannot be read: unknown error", status: "its temperature cannot be read: unknown error", found: "0,1",
	},
	{
		name: "memory hangs", faults: "0 nvmlDeviceGetMemoryInfo hang",
		problem: "the NVIDIA driver does not answer", status: "the NVIDIA driver does not answer", found: stubUUID(1), brief: true,
	},
	{
		name: "everything hangs", faults: "0 nvmlDevice* hang",
		problem: "the NVIDIA driver does not answer", status: "the NVIDIA driver does not answer", found: stubUUID(1), brief: true,
	},
	{
		name: "lost", faults: "0 nvmlDevice* error 15",
		problem: "the GPU is lost", status: "the GPU is lost", found: stubUUID(1),
	},
	{
		name: "needs a reset", faults: "0 nvmlDevice* error 16",
		problem: "the GPU is lost: it needs a reset", status: "the GPU is lost: it needs a reset", found: stubUUID(1),
	},
}

// No driver fault resumes a hot GPU, affects another one, or makes a GPU look healthy.
// When the fault ends, so do its effects.
func TestDriverFaults(t *testing.T) {
	t.Parallel()
	stub := buildStub(t)
	for _, test := range driverFaults {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.problem != "" {
				t.Run("monitor", func(t *testing.T) { t.Parallel(); monitorFault(t, stub, test.faults, test.problem) })
			}
			limit := "GPU_TEST_TIMEOUT=20s"
			if test.brief {
				limit = "GPU_TEST_TIMEOUT=3s"
			}
			state := stubState(t, test.faults, "* nvmlErrorString garbage")
			t.Run("status", func(t *testing.T) { t.Parallel(); statusFault(t, test.status, test.brief, stub, state, limit) })
			t.Run("discovery", func(t *testing.T) {
				t.Parallel()
				if a := discover(t, "all", stub, state, limit); a.Error != nil || tokens(a.Inventory) != test.found {
					t.Errorf("got %+v, want %s", a, test.found)
				}
			})
		})
	}
}

// monitorFault monitors a hot GPU 0 during a fault, and GPU 1 next to it.
func monitorFault(t *testing.T, stub, faults, problem string) {
	const garbage = "* nvmlErrorString garbage\n"
	s := startSamples(t, stub, garbage+"0 temperature 90", "GPU_TEST_TIMEOUT=300ms")
	defer s.end()
	s.until("hot", func(all []Health) bool { return all[0].State == Critical && all[1].State == Optimal })
	s.set(garbage + "0 temperature 90\n1 temperature 71\n" + faults)
	s.until("the fault", func(all []Health) bool {
		if h := all[0]; h.Pace > 0.5 || h.State == Optimal || h.State == Normal {
			t.Fatalf("GPU 0 is taken for cool: %+v", h)
		}
		return all[0].Problem == problem && all[1].State == Normal
	})
	if h := s.next()[1]; h.Problem != "" || h.Pace != 1 {
		t.Errorf("GPU 1: %+v", h)
	}
	s.set(garbage + "0 temperature 50")
	s.until("the end of the fault", func(all []Health) bool { return all[0].State == Optimal && all[0].Pace == 1 && all[0].Problem == "" })
}

// until samples until a condition holds.
func (s *samples) until(what string, holds func([]Health) bool) {
	s.t.Helper()
	var all []Health
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if all = s.next(); holds(all) {
			return
		}
	}
	s.t.Fatalf("waited in vain for %s: %+v", what, all)
}

func statusFault(t *testing.T, problem string, brief bool, env ...string) {
	var all []Glance
	if out := runSelf(t, append(env, lookMode+"=1")...); json.Unmarshal(out, &all) != nil || len(all) != 2 {
		t.Fatalf("%s", out)
	}
	if got := all[0].Problem + all[0].Lost; got != problem || problem != "" && all[0].State != "UNAVAILABLE" {
		t.Errorf("GPU 0: %s, %q, want %q", all[0].State, got, problem)
	}
	// A brief Look may be too short for a busy machine.
	if g := all[1]; g.State != "OPTIMAL" && !(brief && strings.Contains(g.Problem+g.Lost, "does not answer")) {
		t.Errorf("GPU 1: %+v", g)
	}
}

// A driver that takes longer than the timeout for every sample is still monitored: its
// answers are used one round later, unless they are stale.
func TestSlowDriverIsMonitored(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for name, test := range map[string]struct {
		took, age   time.Duration
		known, asks bool
	}{
		"slow":       {2500 * time.Millisecond, 3 * time.Second, true, true},
		"fast again": {time.Second, 3 * time.Second, false, false},
		"stale":      {5 * time.Second, 7 * time.Second, false, false},
	} {
		p := &probe{answers: make(chan reading, 1), requests: make(chan time.Time, 1), pending: true}
		if r, known := p.late(start, 2*time.Second, 6*time.Second); !known || r.err != errHangs {
			t.Errorf("%s, before the answer: %+v %v", name, r, known)
		}
		p.answers <- reading{began: start, sample: Sample{Time: start.Add(test.took), Temperature: Some(50)}}
		r, known := p.late(start.Add(test.age), 2*time.Second, 6*time.Second)
		if known != test.known || p.pending != test.asks || len(p.requests) > 0 != test.asks || known && r.sample.Temperature.Or(0) != 50 {
			t.Errorf("%s: %+v %v, pending %v", name, r, known, p.pending)
		}
	}
}
