package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// The stub applies a fault only to that function of that GPU, while the program runs.
func TestStubFaults(t *testing.T) {
	t.Parallel()
	s := startSamples(t, buildStub(t), "0 temperature 50")
	defer s.end()
	for _, step := range []struct {
		lines  string
		first  string // GPU 0's temperature
		second string // GPU 1's
		power  string // GPU 0's
	}{
		{"0 temperature 50", "50", "40", "126"},
		{"0 temperature 60\n0 nvmlDeviceGetTemperature stale", "50", "40", "126"},
		{"0 temperature 60\n0 nvmlDeviceGetTemperature late 10", "50", "40", "126"},
		{"0 temperature 60\n0 nvmlDeviceGetTemperature hang 10", "60", "40", "126"},
		{"0 nvmlDeviceGetTemperature error 999", "not supported", "40", "126"},
		{"0 nvmlDeviceGetP* error 999", "40", "40", "not supported"},
		{"* nvmlDeviceGetTemperature error 999\n1 nvmlDeviceGetTemperature ok", "not supported", "40", "126"},
		{"", "40", "40", "126"},
	} {
		s.set(step.lines)
		all := s.next()
		first, second, power := all[0].Sample.Temperature.String(), all[1].Sample.Temperature.String(), all[0].Sample.Power.String()
		if first != step.first || second != step.second || power != step.power {
			t.Errorf("%q: %s °C, %s °C, %s W, want %s, %s, %s", step.lines, first, second, power, step.first, step.second, step.power)
		}
	}
}

// stubState writes a file that controls the stub and returns the variable that names it.
func stubState(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return "NVMLSTUB_STATE=" + path
}

// The driver library's error strings are unmapped or overwritten at shutdown, but messages
// are read later.
func TestErrorsOutliveTheLibrary(t *testing.T) {
	t.Parallel()
	stub := buildStub(t)
	for name, test := range map[string]struct{ faults, want string }{
		"unmapped":     {"* nvmlDeviceGetCount error 999\n* nvmlErrorString freed", "count the GPUs: unknown error"},
		"overwritten":  {"* nvmlDeviceGetCount error 4\n* nvmlErrorString garbage", "count the GPUs: insufficient permissions"},
		"unknown code": {"* nvmlDeviceGetCount error 77\n* nvmlErrorString garbage", "count the GPUs: NVML error 77"},
		"of a GPU":     {"* nvmlDeviceGetHandleByIndex error 12\n* nvmlErrorString freed", "GPU 1: driver library not found"},
	} {
		t.Run(name, func(t *testing.T) {
			a := discover(t, "all", stub, stubState(t, test.faults))
			if a.Error == nil || a.Error.Kind != fault.NoDevice || !strings.Contains(a.Error.Message, test.want) {
				t.Errorf("got %+v, want %q", a.Error, test.want)
			}
		})
	}
}
