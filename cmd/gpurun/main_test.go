package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/plugins/builtin"
	"github.com/gpurun/gpurun/worker"
)

// program is gpurun: this test binary, or a build without what only tests need, which starts
// in half the time.
var program = os.Args[0]

// TestMain lets the test binary act as gpurun, and as its workers and kernels.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	worker.Init(builtin.Kernels())
	if os.Getenv("GPURUN_TEST_COMMAND") != "" {
		os.Exit(Main())
	}
	testscript.Main(apart{m}, map[string]func(){"gpurun": func() { os.Exit(Main()) }})
}

// apart runs tests isolated from the leases and jobs of the machine.
type apart struct{ *testing.M }

func (a apart) Run() int {
	dir, err := os.MkdirTemp("/tmp", "gpurun-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv(lease.Variable, filepath.Join(dir, "leases"))
	os.Setenv(jobs.Variable, filepath.Join(dir, "jobs"))
	if path := os.Getenv("GPURUN_TEST_PROGRAM"); path != "" { // scripts/test.sh
		program = path
		if err := installForScripts(program); err != nil {
			panic(err)
		}
	}
	// Programs inherit an ignored signal, as under nohup, but not a handler.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return a.M.Run()
}

// installForScripts replaces the command that testscript has made of this test binary.
func installForScripts(program string) error {
	installed, err := exec.LookPath("gpurun")
	if err != nil {
		return err
	}
	if err := os.Remove(installed); err != nil {
		return err
	}
	return os.Link(program, installed)
}

// TestScripts runs the command lines of the documentation, and user errors.
func TestScripts(t *testing.T) {
	stub, cache := nvmlStub(t), t.TempDir()
	downloadModules(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("XDG_CACHE_HOME", cache) // scripts share what Python has compiled
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv(lease.Variable, filepath.Join(env.WorkDir, "leases"))
			env.Setenv(jobs.Variable, filepath.Join(env.WorkDir, "jobs"))
			env.Setenv("NVMLSTUB_DIR", stub)
			return buildEnvironment(env)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "nvmlstub":
				return stub != "", nil
			case "cgo":
				return gpu.BuiltWithNVML && runtime.GOOS == "linux", nil
			}
			return false, nil
		},
	})
}

// downloadModules fills the module cache with the dependencies of Go kernels, which are
// more than those of this package: the scripts build without a network.
func downloadModules(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("go", "list", "-deps", "-test", "../../plugins/...", "../../examples/...").CombinedOutput(); err != nil {
		t.Fatalf("download modules: %v\n%s", err, out)
	}
}

// buildEnvironment lets scripts build Go kernels against this source without a network.
func buildEnvironment(env *testscript.Env) error {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return err
	}
	values := strings.Fields(string(out))
	source, err := filepath.Abs("../..")
	if err != nil || len(values) != 2 {
		return fmt.Errorf("go env said %q; %w", out, err)
	}
	env.Setenv("GOMODCACHE", values[0])
	env.Setenv("GOCACHE", values[1])
	env.Setenv("GOFLAGS", "-mod=readonly -trimpath -ldflags=-w") // the scaffold's go.mod must be complete; trimmed as make build; linked in half the time
	env.Setenv("CGO_CFLAGS", os.Getenv("CGO_CFLAGS"))            // as make sets it, or all C code is compiled again
	env.Setenv("GOPROXY", "off")
	env.Setenv("GOSUMDB", "off")
	env.Setenv("SOURCE", source)
	return nil
}

// nvmlStub builds a library that simulates a machine with GPUs; "" if that is not possible.
func nvmlStub(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil || !gpu.BuiltWithNVML || runtime.GOOS != "linux" {
		t.Log("SKIPPED: no C compiler or no NVML: the tests against a stub of the NVIDIA library")
		return ""
	}
	dir := t.TempDir()
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", filepath.Join(dir, "libnvidia-ml.so.1"),
		"../../gpu/testdata/nvmlstub/stub.c").CombinedOutput()
	if err != nil {
		t.Fatalf("build stub: %v\n%s", err, out)
	}
	return dir
}
