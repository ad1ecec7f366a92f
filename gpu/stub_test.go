package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// discoverMode makes the test binary a program that prints this machine's
// inventory, since the loader reads LD_LIBRARY_PATH only when a process starts.
const discoverMode = "GPU_TEST_DISCOVER"

func TestMain(m *testing.M) {
	if selection, ok := os.LookupEnv(discoverMode); ok {
		os.Exit(discoverMain(selection))
	}
	if os.Getenv(lookMode) != "" {
		os.Exit(lookMain())
	}
	if os.Getenv(watchMode) != "" {
		os.Exit(watchMain())
	}
	if os.Getenv(sampleMode) != "" {
		os.Exit(sampleMain())
	}
	status := m.Run()
	stubs.Range(func(_, built any) bool {
		stub, _ := built.(func() (string, error))()
		return os.RemoveAll(stub) == nil
	})
	os.Exit(status)
}

type answer struct {
	Inventory Inventory
	Error     *fault.Error
}

func discoverMain(selection string) int {
	var a answer
	timeout, _ := time.ParseDuration(os.Getenv("GPU_TEST_TIMEOUT")) // none: the default
	sel, err := ParseSelection(selection)
	if err == nil {
		a.Inventory, err = Select(context.Background(), sel, Options{Timeout: timeout})
	}
	a.Error = fault.As(err)
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// discover runs the selection in a separate process, with the real binding.
func discover(t *testing.T, selection string, env ...string) answer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	// Pass only what the loader may need: a CUDA_VISIBLE_DEVICES of the machine that runs
	// the tests must not matter. By default the race detector makes every process sleep
	// for a second when it exits.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", discoverMode + "=" + selection}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return a
}

// stubs has the folders of compiled stub libraries, by the flags of the compiler.
var stubs sync.Map

// buildStub compiles the stub library, once for all tests, and returns the variable that makes a
// process load it.
func buildStub(t testing.TB, flags ...string) string {
	t.Helper()
	if !BuiltWithNVML {
		t.Skip("SKIPPED: this test binary was built without cgo, so there is no binding to test")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: no C compiler (cc) to build testdata/nvmlstub/stub.c with")
	}
	built, _ := stubs.LoadOrStore(strings.Join(flags, " "), sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "nvmlstub-")
		if err != nil {
			return "", err
		}
		args := append([]string{"-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"}, flags...)
		cmd := exec.Command(cc, append(args, "-o", filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join("testdata", "nvmlstub", "stub.c"))...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("compile the stub: %w\n%s", err, out)
		}
		return dir, nil
	}))
	dir, err := built.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return "LD_LIBRARY_PATH=" + dir
}

func TestStub(t *testing.T) {
	stub := buildStub(t)
	for name, test := range map[string]struct {
		gpus  string
		env   []string
		want  string // tokens
		kind  fault.Kind
		error string
		note  string
	}{
		"default":     {want: "0,1"},
		"five":        {env: []string{"NVMLSTUB_GPUS=5"}, want: "0,1,2,3,4"},
		"chosen":      {gpus: "2,0", env: []string{"NVMLSTUB_GPUS=5"}, want: "2,0"},
		"inherited":   {gpus: "0,2", env: []string{"NVMLSTUB_GPUS=8", "CUDA_VISIBLE_DEVICES=4,5,6"}, want: "4,6"},
		"UUID":        {gpus: "GPU-00000001", want: "1"},
		"lost":        {env: []string{"NVMLSTUB_GPUS=3", "NVMLSTUB_LOST=1"}, want: stubUUID(0) + "," + stubUUID(2), note: "skipping GPU 1: the GPU is lost"},
		"all lost":    {env: []string{"NVMLSTUB_LOST=0,1"}, kind: fault.NoDevice, error: "no usable GPU"},
		"models":      {env: []string{"NVMLSTUB_NAMES=A,B", "CUDA_VISIBLE_DEVICES=0"}, want: "0", note: "different models"},
		"none":        {env: []string{"NVMLSTUB_GPUS=0"}, kind: fault.NoDevice, error: "driver 580.00.00 is loaded but shows no GPU"},
		"too high":    {gpus: "9", kind: fault.Usage, error: "this machine has 2 GPUs (0-1)"},
		"init fails":  {env: []string{"NVMLSTUB_INIT=fail"}, kind: fault.NoDevice, error: "installed but not loaded"},
		"old library": {env: []string{"NVMLSTUB_INIT=18"}, kind: fault.NoDevice, error: "have different versions"},
		"odd code":    {env: []string{"NVMLSTUB_INIT=77"}, kind: fault.NoDevice, error: "code 77"},
		"init hangs":  {env: []string{"NVMLSTUB_INIT=hang", "GPU_TEST_TIMEOUT=200ms"}, kind: fault.NoDevice, error: "did not answer within 200ms (initialize NVML)"},
		"CPUs":        {gpus: "cpu:2", env: []string{"NVMLSTUB_INIT=hang"}, want: ","},
	} {
		t.Run(name, func(t *testing.T) {
			if test.gpus == "" {
				test.gpus = "all"
			}
			a := discover(t, test.gpus, append(test.env, stub)...)
			if test.error != "" {
				if a.Error == nil || a.Error.Kind != test.kind || !strings.Contains(a.Error.Message, test.error) {
					t.Errorf("got %+v, want %v with %q", a.Error, test.kind, test.error)
				}
				return
			}
			if a.Error != nil || tokens(a.Inventory) != test.want || !strings.Contains(a.Inventory.Note, test.note) {
				t.Errorf("got %+v, want tokens %s and a note with %q", a, test.want, test.note)
			}
		})
	}
}

func stubUUID(i int) string { return fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i) }

// Every field, through the real binding.
func TestStubFields(t *testing.T) {
	a := discover(t, "1", buildStub(t), "NVMLSTUB_NAMES=NVIDIA A,NVIDIA B")
	if a.Error != nil || len(a.Inventory.Devices) != 1 {
		t.Fatalf("%+v", a)
	}
	got := a.Inventory.Devices[0]
	want := Device{
		Kind: GPU, Index: 1, UUID: stubUUID(1), Name: "NVIDIA B", Token: "1", PCIOrder: true,
		PCIBusID: "00000000:11:00.0", Memory: 80 << 30, MemoryFree: 79 << 30, CPUs: got.CPUs,
	}
	if !equal(got, want) || len(got.CPUs) != 1 {
		t.Errorf("got %+v, want %+v and one CPU", got, want)
	}
	if a.Inventory.DriverVersion != "580.00.00" {
		t.Errorf("driver %q", a.Inventory.DriverVersion)
	}
}

// A thread for each GPU and one for the rest, Shutdown at the end, and nothing after a failed Init.
func TestStubCalls(t *testing.T) {
	stub := buildStub(t)
	calls := func(env ...string) (names []string, threads map[string]bool) {
		log := filepath.Join(t.TempDir(), "log")
		discover(t, "all", append(env, stub, "NVMLSTUB_LOG="+log)...)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return stubCalls(string(text))
	}
	names, threads := calls("NVMLSTUB_GPUS=8")
	if len(threads) > 1+8 || names[0] != "nvmlInit" || names[len(names)-1] != "nvmlShutdown" {
		t.Errorf("threads %v, calls %v", threads, names)
	}
	if names, _ := calls("NVMLSTUB_INIT=fail"); !slices.Equal(names, []string{"nvmlInit"}) {
		t.Errorf("after a failed Init: %v", names)
	}
}

// The real library, or its absence, on any machine: the result keeps the package's
// promises.
func TestThisMachine(t *testing.T) {
	a := discover(t, "all")
	t.Logf("%+v", a)
	switch {
	case a.Error != nil:
		if a.Error.Kind != fault.NoDevice || !driverPresent() {
			t.Errorf("%+v", a.Error)
		}
	case len(a.Inventory.Devices) == 0:
		t.Error("neither devices nor an error")
	case a.Inventory.Devices[0].Kind == CPU && (a.Inventory.Note == "" || driverPresent()):
		t.Error("a silent CPU run")
	}
}
