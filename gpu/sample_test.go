package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sampleMode makes the test binary a program that answers every input line with a sample
// of this machine's devices, as a line of JSON. States may fall immediately.
const sampleMode = "GPU_TEST_SAMPLE"

func sampleMain() int {
	inventory, err := Discover(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	timeout, err := time.ParseDuration(os.Getenv("GPU_TEST_TIMEOUT"))
	if err != nil {
		timeout = 20 * time.Second
	}
	config := DefaultConfig()
	config.ThrottleCooldown, config.CriticalPause = 0, 0
	monitor, err := NewMonitor(inventory.Devices, MonitorOptions{Timeout: timeout, Config: config})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer monitor.Close()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		monitor.Poll(context.Background())
		if err := json.NewEncoder(os.Stdout).Encode(monitor.Status()); err != nil {
			return 1
		}
	}
	return 0
}

// samples is such a running program, on a stub that a file controls.
type samples struct {
	t     testing.TB
	state string
	stdin io.WriteCloser
	lines *bufio.Scanner
	cmd   *exec.Cmd
}

func startSamples(t testing.TB, stub, state string, env ...string) *samples {
	t.Helper()
	s := &samples{t: t, state: filepath.Join(t.TempDir(), "state")}
	s.set(state)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.CommandContext(t.Context(), exe)
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", sampleMode + "=1", stub, "NVMLSTUB_STATE=" + s.state}, env...)
	s.cmd.Stderr = os.Stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewScanner(stdout)
	s.lines.Buffer(nil, 1<<20)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// set atomically writes the file that controls the stub.
func (s *samples) set(lines ...string) {
	s.t.Helper()
	if err := os.WriteFile(s.state+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.state+".new", s.state); err != nil {
		s.t.Fatal(err)
	}
}

func (s *samples) next() []Health {
	s.t.Helper()
	if _, err := io.WriteString(s.stdin, "\n"); err != nil {
		s.t.Fatal(err)
	}
	if !s.lines.Scan() {
		s.t.Fatalf("no answer: %v, %v", s.lines.Err(), s.cmd.Wait())
	}
	var all []Health
	if err := json.Unmarshal(s.lines.Bytes(), &all); err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *samples) end() {
	s.t.Helper()
	s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		s.t.Error(err)
	}
}

const full = `* temperature 71
* utilization 93
* reserved 645
* power 698500
* energy 123456789
* throttle 36
* ecc_corrected 2
* processes 4711:2048,12:30`

// Every value, through the real binding.
func TestStubSample(t *testing.T) {
	s := startSamples(t, buildStub(t), full+"\n1 mig 2\n1 fan 55")
	all := s.next()
	defer s.end()
	if len(all) != 3 {
		t.Fatalf("%d devices: %+v", len(all), all)
	}
	h := all[0]
	got := h.Sample
	got.Time, got.Processes = time.Time{}, Optional[[]Process]{}
	want := Sample{
		Temperature: Some(71), Slowdown: Some(89), Shutdown: Some(95), Utilization: Some(93),
		Memory: Some(Memory{Total: 80 << 30, Used: 1 << 30, Free: 79<<30 - 645<<20, Reserved: 645 << 20}),
		Power:  Some(Watt(698.5)), PowerLimit: Some(Watt(700)), Energy: Some(Joule(123456.789)),
		ClockSM: Some(1980), ClockMemory: Some(3201), Throttle: Some(Reasons(36)),
		ECCCorrected: Some(uint64(2)), ECCUncorrected: Some(uint64(0)),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || h.State != Throttled || h.Clocks != 36 { // it slows itself down
		t.Errorf("got  %+v\nwant %+v\n%s", got, want, h.State)
	}
	if list := h.Sample.Processes.Or(nil); len(list) != 2 || list[0].PID != 4711 || list[0].Memory.Or(0) != 2<<30 || list[1].PID != 12 {
		t.Errorf("processes %v", list)
	}
	mig := all[2]
	if mig.Device.String() != "MIG 1:1" || mig.Device.UUID != "MIG-00000001-0001-4000-8000-000000000000" || mig.Device.Name != "NVIDIA Stub MIG 1g.10gb" {
		t.Errorf("%+v", mig.Device)
	}
	if mig.Sample.Temperature.Or(0) != 71 || mig.Sample.Fan.Or(0) != 55 || mig.Sample.Memory.Or(Memory{}).Total != 10<<30 || !mig.Sample.Utilization.IsZero() {
		t.Errorf("%+v", mig.Sample)
	}
}

// A driver of 2019 lacks some calls. The process survives and reads everything else.
func TestStubOldDriver(t *testing.T) {
	s := startSamples(t, buildStub(t, "-DOLD_DRIVER"), full+"\n1 mig 2")
	all := s.next()
	defer s.end()
	if len(all) != 2 {
		t.Fatalf("%d devices: %+v", len(all), all)
	}
	got := all[0].Sample
	if !got.Energy.IsZero() || got.Memory.Or(Memory{}).Used != 1<<30+645<<20 || got.Memory.Or(Memory{}).Reserved != 0 ||
		got.Throttle.Or(0) != 36 || len(got.Processes.Or(nil)) != 2 || got.Temperature.Or(0) != 71 {
		t.Errorf("%+v", got)
	}
}
