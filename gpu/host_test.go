package gpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/internal/resources"
)

func writeProc(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHost(t *testing.T) {
	dir := t.TempDir()
	r := HostReader{system: resources.System{Root: dir}}
	if h := r.Read(); h != (Host{}) {
		t.Errorf("nothing is there: %+v", h)
	}
	writeProc(t, dir, map[string]string{
		"proc/stat":    "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1\n",
		"proc/meminfo": "MemTotal:       1000 kB\nMemFree:        100 kB\nMemAvailable:    400 kB\n",
	})
	h := r.Read()
	if !h.CPU.IsZero() { // there is no previous sample
		t.Errorf("%+v", h)
	}
	if h.MemoryTotal.Or(0) != 1000<<10 || h.MemoryAvailable.Or(0) != 400<<10 {
		t.Errorf("%+v", h)
	}
	writeProc(t, dir, map[string]string{"proc/stat": "cpu  150 0 100 740 110 0 0 0 50 0\n"})
	if got := r.Read().CPU.Or(-1); got != 50 { // 50 of 100 ticks
		t.Errorf("%v %% of the CPUs", got)
	}
	writeProc(t, dir, map[string]string{"proc/stat": "cpu  1 0 x 1 1 1\n"})
	if got := r.Read().CPU; !got.IsZero() {
		t.Errorf("of a damaged file: %v", got)
	}
}
