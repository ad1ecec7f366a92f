//go:build gpu

package gpu

import (
	"context"
	"encoding/json"
	"syscall"
	"testing"
	"time"
)

// These tests are for a machine with a real card:
//
//	go test -c -tags gpu -o bin/gpu.test ./gpu
//	bin/gpu.test -test.v -test.run '^TestCard'
//
// The binary needs no other files. The tests print what NVML returns.

func cards(t *testing.T) Inventory {
	t.Helper()
	inventory, err := Discover(t.Context(), Options{})
	if err != nil {
		t.Fatalf("this machine has no usable GPU: %v", err)
	}
	if inventory.Devices[0].Kind != GPU {
		t.Fatalf("this machine has no GPU: %s", inventory.Note)
	}
	return inventory
}

func show(t *testing.T, what string, value any) {
	t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", what, text)
}

func TestCardInventory(t *testing.T) {
	inventory := cards(t)
	show(t, "inventory", inventory)
	if inventory.DriverVersion == "" {
		t.Error("no version of the driver")
	}
	for _, d := range inventory.Devices {
		if d.UUID == "" || d.Name == unknownName || d.Memory == 0 || d.MemoryFree > d.Memory || d.PCIBusID == "" || d.Token == "" {
			t.Errorf("%s does not report its identity: %+v", d, d)
		}
	}
}

// The variable is parsed as CUDA parses it, in every form.
func TestCardVisible(t *testing.T) {
	first := cards(t).Devices[0]
	for _, token := range []string{first.UUID, first.UUID[:12], "0", "0,-1"} {
		opts := Options{Env: func(name string) (string, bool) {
			return map[string]string{visibleVariable: token, orderVariable: pciOrder}[name], true
		}}
		inventory, err := Discover(t.Context(), opts)
		if err != nil || len(inventory.Devices) != 1 || inventory.Devices[0].UUID != first.UUID && first.Parent == nil {
			t.Errorf("%s=%s: %+v, %v", visibleVariable, token, inventory, err)
		}
	}
	for _, token := range []string{"", "-1", first.UUID + "," + first.UUID} {
		opts := Options{Env: func(name string) (string, bool) { return token, name == visibleVariable }}
		if inventory, err := Discover(t.Context(), opts); err == nil {
			t.Errorf("%s=%s: %+v", visibleVariable, token, inventory)
		}
	}
}

// A sample has everything that an H200 reports, with plausible values.
func TestCardSample(t *testing.T) {
	inventory := cards(t)
	monitor, err := NewMonitor(inventory.Devices, MonitorOptions{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	monitor.Poll(t.Context())
	for _, h := range monitor.Status() {
		show(t, h.Device.String(), h)
		s := h.Sample
		t.Logf("%s: temperature %v, slowdown %v, shutdown %v, utilisation %v, power %v of %v, energy %v, clocks %v/%v, throttle %v, ECC %v/%v, fan %v, processes %v",
			h.Device, s.Temperature, s.Slowdown, s.Shutdown, s.Utilization, s.Power, s.PowerLimit, s.Energy, s.ClockSM, s.ClockMemory,
			s.Throttle, s.ECCCorrected, s.ECCUncorrected, s.Fan, s.Processes)
		if h.Problem != "" || h.State == Unavailable {
			t.Errorf("%s is not monitored: %s", h.Device, h.Problem)
		}
		checkSample(t, h.Device, s)
	}
	show(t, "host", NewHostReader().Read())
}

func checkSample(t *testing.T, d Device, s Sample) {
	t.Helper()
	between := func(what string, value Optional[int], low, high int) {
		t.Helper()
		if v, known := value.Get(); known && (v < low || v > high) {
			t.Errorf("%s: %s is %d", d, what, v)
		}
	}
	between("temperature", s.Temperature, 5, 110)
	between("slowdown temperature", s.Slowdown, plausibleSlowdown, 120)
	between("shutdown temperature", s.Shutdown, s.Slowdown.Or(0), 130)
	between("utilisation", s.Utilization, 0, 100)
	between("fan", s.Fan, 0, 120)
	m, known := s.Memory.Get()
	if !known || m.Total == 0 || m.Used+m.Free > m.Total+m.Reserved+(1<<20) {
		t.Errorf("%s: memory %+v", d, m)
	}
	if s.Temperature.IsZero() || s.Power.IsZero() {
		t.Errorf("%s reports neither temperature nor power: %+v", d, s)
	}
	if power, known := s.Power.Get(); known && (power < 1 || power > 2000) {
		t.Errorf("%s: %v W", d, power)
	}
}

// Monitoring costs less than 1 % of a CPU at the default interval, including the driver,
// and a query takes less than a millisecond.
func TestCardCost(t *testing.T) {
	inventory := cards(t)
	monitor, err := NewMonitor(inventory.Devices, MonitorOptions{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	monitor.Poll(t.Context()) // the first poll opens the driver
	const rounds = 50
	before, begin := cpuTime(t), time.Now()
	for range rounds {
		monitor.Poll(t.Context())
	}
	cpu, wall := (cpuTime(t)-before)/rounds, time.Since(begin)/rounds
	share := 100 * cpu.Seconds() / DefaultConfig().Interval.Seconds()
	t.Logf("a poll of %d devices takes %s, %s of CPU: %.3f %% of a CPU every %s", len(inventory.Devices), wall, cpu, share, DefaultConfig().Interval)
	if share >= 1 {
		t.Errorf("monitoring costs %.2f %% of a CPU", share)
	}
	begin = time.Now()
	for range 100 {
		_ = monitor.Status()
	}
	if took := time.Since(begin) / 100; took > time.Millisecond {
		t.Errorf("a query takes %s", took)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Waiting for events works at the same time, and ends when asked to.
func TestCardEvents(t *testing.T) {
	inventory := cards(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := WatchXids(ctx, inventory.Devices, Options{}, func(e XidEvent) { t.Logf("the driver reports %s", e) }); err != nil {
		t.Error(err)
	}
}
