package lease

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// The example configuration is valid.
func TestExampleConfig(t *testing.T) {
	c, err := ReadConfig("../../examples/services.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.QuotaOf("docling-vlm-service"); got.MinMemoryMB != 4096 || got.MaxMemoryMB != 16384 || got.Prefer() != -1 {
		t.Errorf("docling: %+v", got)
	}
	if len(c.Services) != 3 || c.QuotaOf("nobody") != (Quota{}) {
		t.Errorf("services: %+v", c.Services)
	}
	d := DefaultConfig()
	if c.Optimization != d.Optimization || c.MemoryReserveMB != d.MemoryReserveMB || c.MemoryLimitMB != d.MemoryLimitMB {
		t.Errorf("the example says %+v, the defaults are %+v", c, d)
	}
	if Seconds(c.Optimization.AllocationTimeout) != 30*time.Second || Seconds(c.Optimization.DeallocationTimeout) != 10*time.Second {
		t.Errorf("timeouts: %+v", c.Optimization)
	}
}

func TestBadConfig(t *testing.T) {
	for text, want := range map[string]string{
		"services: [":                            "services",
		"servises: {}":                           "unknown field \"servises\"",
		"services:\n  a:\n    max_memory: 1":     "unknown field \"max_memory\"",
		"services:\n  a:\n    min_memory_mb: -1": "min_memory_mb is -1",
		"services:\n  a:\n    min_memory_mb: 9223372036854775807":     "min_memory_mb is 9223372036854775807",
		"services:\n  a:\n    min_memory_mb: 2\n    max_memory_mb: 1": "service a: min_memory_mb 2 is more than max_memory_mb 1",
		"services:\n  a:\n    preferred_device: -3":                   "preferred_device is -3",
		"optimization:\n  memory_threshold: 85":                       "memory_threshold is 85",
		"optimization:\n  allocation_timeout: -1":                     "allocation_timeout is -1",
		"memory_reserve_mb: lots":                                     "memory_reserve_mb",
	} {
		path := filepath.Join(t.TempDir(), "services.yaml")
		must(t, os.WriteFile(path, []byte(text), 0o666))
		if _, err := ReadConfig(path); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := ReadConfig(filepath.Join(t.TempDir(), "none.yaml")); fault.KindOf(err) != fault.Usage {
		t.Errorf("a file that is not there: %v", err)
	}
	if c, err := ReadConfig(""); err != nil {
		t.Errorf("no file at all: %+v %v", c, err)
	}
}

func TestQuotaCheck(t *testing.T) {
	q := Quota{MinMemoryMB: 2048, MaxMemoryMB: 8192}
	for memory, want := range map[uint64]string{1024: "at least 2048 MiB", 2048: "", 8192: "", 8193: "at most 8192 MiB"} {
		err := q.Check("embedding", memory*MiB)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %v, want %q", memory, err, want)
		}
	}
}
