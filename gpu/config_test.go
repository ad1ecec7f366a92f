package gpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "monitor.yaml")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadConfig(t *testing.T) {
	c, err := gpu.LoadConfig(writeConfig(t, `
# every name there is
temp_optimal: 60
temp_normal: 70
temp_throttle: 80
temp_critical: 88
memory_optimal: 50
memory_normal: 60
memory_critical: 90
memory_limit_mb: 6144
memory_reserve_mb: 1024
monitor_interval: 0.5
history_size: 10
throttle_cooldown_seconds: 1m
critical_pause_seconds: 90
`))
	want := gpu.Config{
		TempOptimal: 60, TempNormal: 70, TempThrottle: 80, TempCritical: 88,
		MemoryOptimal: 50, MemoryNormal: 60, MemoryCritical: 90, MemoryLimit: 6144, MemoryReserve: 1024,
		Interval: 500 * time.Millisecond, HistorySize: 10, ThrottleCooldown: time.Minute, CriticalPause: 90 * time.Second,
	}
	if err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}
	again, err := gpu.DefaultConfig().With(c.Settings())
	if err != nil || again != want {
		t.Errorf("its own settings give %+v, %v", again, err)
	}
	if c, err := gpu.LoadConfig(writeConfig(t, "# nothing\n")); err != nil || c != gpu.DefaultConfig() {
		t.Errorf("an empty file: %+v, %v", c, err)
	}
	if c, err := gpu.LoadConfig(writeConfig(t, `{"temp_throttle": 70}`)); err != nil || c.TempThrottle != 70 {
		t.Errorf("JSON: %+v, %v", c, err)
	}
}

func TestLoadConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"temp_throtle: 80":                    `unknown setting "temp_throtle"; did you mean temp_throttle?`,
		"Temp_Normal: 80":                     "did you mean temp_normal?",
		"colour: red":                         "valid settings are critical_pause_seconds, history_size",
		"temp_normal: hot":                    "temp_normal: hot is not a number from 0 to 150",
		"temp_normal: -1":                     "-1 is not a number from 0 to 150",
		"temp_normal: 70.5":                   "70.5 is not an integer",
		"temp_normal: 151":                    "not a number from 0 to 150",
		"temp_normal: [1]":                    "is not a number",
		"temp_normal: .nan":                   "NaN is not a number",
		"memory_critical: 0":                  "from 1 to 100",
		"monitor_interval: 0":                 "from 0.1 to 3600",
		"history_size: 0":                     "history_size: 0 is not a number from 1",
		"temp_optimal: 80\ntemp_normal: 70":   "temp_normal (70) is below temp_optimal (80)",
		"memory_optimal: 99":                  "memory_normal (85) is below memory_optimal (99)",
		"temp_optimal: 90\ntemp_critical: 80": "temp_critical (80) is below temp_optimal (90)",
		"- a\n- b":                            "is not a YAML mapping of names to numbers",
		"a: b: c":                             "is not a YAML mapping of names to numbers",
		"temp_normal: 70\ntemp_normal: 71":    "is not a YAML mapping of names to numbers",
	} {
		_, err := gpu.LoadConfig(writeConfig(t, text))
		if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := gpu.LoadConfig("/no/such/file"); fault.KindOf(err) != fault.Usage {
		t.Error(err)
	}
}

// Thresholds that are not configured stay the card's own, between those that are.
func TestSomeTemperaturesConfigured(t *testing.T) {
	for name, test := range map[string]struct {
		settings map[string]any
		states   map[int]gpu.State // with a slowdown temperature of 89 °C
	}{
		"throttle lower than all": {map[string]any{"temp_throttle": 60}, map[int]gpu.State{59: gpu.Optimal, 60: gpu.Critical}},
		"optimal higher than all": {map[string]any{"temp_optimal": 95}, map[int]gpu.State{94: gpu.Optimal, 95: gpu.Critical}},
		"normal in between":       {map[string]any{"temp_normal": 82}, map[int]gpu.State{68: gpu.Optimal, 81: gpu.Normal, 82: gpu.Throttled, 85: gpu.Critical}},
	} {
		for celsius, want := range test.states {
			machine := gputest.New(1)
			machine.Change(0, func(c *gputest.Card) { c.Temperature(celsius) })
			config, err := gpu.DefaultConfig().With(test.settings)
			if err != nil {
				t.Fatal(err)
			}
			w := newWatch(t, machine, func(o *gpu.MonitorOptions) { o.Config = config })
			w.poll(0)
			if got := w.health(0).State; got != want {
				t.Errorf("%s: %d °C is %s, want %s", name, celsius, got, want)
			}
		}
	}
}

func TestUsableMemory(t *testing.T) {
	for _, test := range []struct {
		limit, reserve int
		total, want    uint64
	}{
		{0, 512, 0, 0}, {0, 512, 1024 << 20, 512 << 20}, {6144, 512, 81920 << 20, 6144 << 20}, {100000, 1024, 81920 << 20, 80896 << 20}, {0, 4096, 1024 << 20, 1},
	} {
		c := gpu.Config{MemoryLimit: test.limit, MemoryReserve: test.reserve}
		if got := c.UsableMemory(test.total); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
