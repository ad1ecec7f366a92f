package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// Look shows every GPU of the machine, including hidden and lost ones.
func TestLook(t *testing.T) {
	m := newFake(t, same(3)...)
	m.gpus[1].lost = true
	m.gpus[2].unsupported = []string{"Memory"}
	sight, err := Look(t.Context(), options(m, "CUDA_VISIBLE_DEVICES=2"))
	if err != nil || sight.DriverVersion != "580.1" || sight.Note != "" || len(sight.GPUs) != 3 {
		t.Fatalf("%+v %v", sight, err)
	}
	glances := sight.GPUs
	if g := glances[0]; g.MemoryUsed != 10 || g.State != "UNAVAILABLE" || g.Problem != "" || g.Pace != 1 {
		t.Errorf("one without sensors: %+v", g)
	}
	if g := glances[1]; g.State != "UNAVAILABLE" || g.Lost == "" {
		t.Errorf("a lost one: %+v", g)
	}
	if g := glances[2]; g.Memory != 0 || g.MemoryUsed != 0 {
		t.Errorf("one that does not report its memory: %+v", g)
	}
}

func TestLookWithoutDriver(t *testing.T) {
	sight, err := Look(t.Context(), options(&fakeMachine{t: t, initErr: ErrNoLibrary}))
	if err != nil || len(sight.GPUs) != 0 || sight.Note != "no NVIDIA driver" {
		t.Errorf("%+v %v", sight, err)
	}
	broken := options(&fakeMachine{t: t, initErr: ErrNoLibrary})
	broken.DriverPresent = func() bool { return true }
	if _, err := Look(t.Context(), broken); fault.KindOf(err) != fault.NoDevice {
		t.Errorf("a driver without its library: %v", err)
	}
}

// lookMode makes the test binary a program that prints the result of Look.
const lookMode = "GPU_TEST_LOOK"

func lookMain() int {
	timeout, _ := time.ParseDuration(os.Getenv("GPU_TEST_TIMEOUT")) // none: the default
	sight, err := Look(context.Background(), Options{Timeout: timeout})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(sight.GPUs)
	return 0
}

// Every gauge, through the real binding.
func TestStubGauges(t *testing.T) {
	stub := buildStub(t)
	gauges := filepath.Join(t.TempDir(), "gauges")
	text := "1 utilization 93\n1 temperature 71\n1 power 250000\n1 used 40960\n1 processes 4711:30000,4712:960\n0 utilization unsupported\n0 temperature unsupported\n0 power unsupported\n"
	if err := os.WriteFile(gauges, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	out := runSelf(t, stub, lookMode+"=1", "NVMLSTUB_STATE="+gauges)
	var glances []Glance
	if err := json.Unmarshal(out, &glances); err != nil || len(glances) != 2 {
		t.Fatalf("%s: %v", out, err)
	}
	if g := glances[0]; !g.Sample.Utilization.IsZero() || !g.Sample.Temperature.IsZero() || !g.Sample.Power.IsZero() || g.MemoryUsed != 1<<30 {
		t.Errorf("without gauges: %+v", g)
	}
	g := glances[1]
	s := g.Sample
	if s.Utilization.Or(0) != 93 || s.Temperature.Or(0) != 71 || s.Power.Or(0) != 250 || s.PowerLimit.Or(0) != 700 || g.MemoryUsed != 40<<30 || g.State != "NORMAL" {
		t.Errorf("%s", out)
	}
	if list := s.Processes.Or(nil); len(list) != 2 || list[1] != (Process{PID: 4712, Memory: Some[uint64](960 << 20)}) {
		t.Errorf("processes %+v", list)
	}
	if strings.Contains(string(out), `"utilization_percent":0`) {
		t.Errorf("not supported became 0: %s", out)
	}
}

// runSelf runs the test binary as a program, with only the given environment, and returns
// its output.
func runSelf(t *testing.T, env ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return out
}
