package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// kernelVariable makes the test binary a kernel program, or the guard of templates.
const kernelVariable = "GPURUN_TEST_KERNEL"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if os.Getenv(kernelVariable) == "python" {
		plugins.Serve(python.New())
		os.Exit(0)
	}
	if os.Getenv(kernelVariable) == "templates" {
		os.Exit(template.Serve())
	}
	goleak.VerifyTestMain(m)
}

// needPython skips a test, with a message, if there is no interpreter.
func needPython(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: no python3: Python kernels are not tested")
	}
	return path
}

// withPackage returns an interpreter that has the package: the one that
// $GPURUN_TEST_PYTHON names, the one that the Makefile prepares, or the system's.
func withPackage(t testing.TB, name string) string {
	t.Helper()
	candidates := []string{needPython(t)}
	if prepared, err := filepath.Abs("../../.venv/bin/python"); err == nil {
		candidates = append([]string{prepared}, candidates...)
	}
	if named := os.Getenv("GPURUN_TEST_PYTHON"); named != "" {
		candidates = append([]string{named}, candidates...)
	}
	for _, python := range candidates {
		if can(python, name) {
			return python
		}
	}
	t.Skipf("SKIPPED: no Python with %s (make venv prepares numpy): what it returns is not tested", name)
	return ""
}

// imports remembers which interpreter can import what: importing takes seconds.
var imports sync.Map

// can reports whether an interpreter can import a package.
func can(python, name string) bool {
	known, _ := imports.LoadOrStore(python+" "+name, sync.OnceValue(func() bool {
		return exec.Command(python, "-c", "import "+name).Run() == nil
	}))
	return known.(func() bool)()
}

// write creates a kernel file.
func write(t testing.TB, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel.py")
	if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func config(t testing.TB, c resolve.PythonConfig) plugins.Config {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// describer returns a function that describes the source of a kernel. All share an interpreter.
func describer(t testing.TB) func(source string) (plugins.Info, error) {
	t.Helper()
	needPython(t)
	describe, end, err := python.Describer(context.Background(), config(t, resolve.PythonConfig{File: write(t, "")}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end() })
	return func(source string) (plugins.Info, error) { return describe(write(t, source)) }
}

// start returns an open kernel that is closed at the end of the test.
func start(t testing.TB, source string, options ...func(*resolve.PythonConfig)) plugins.Kernel {
	t.Helper()
	needPython(t)
	k, err := try(t, source, options...)
	if err != nil {
		t.Fatalf("%v\n%s", err, detail(err))
	}
	return k
}

// try opens a kernel, which may fail.
func try(t testing.TB, source string, options ...func(*resolve.PythonConfig)) (plugins.Kernel, error) {
	t.Helper()
	c := resolve.PythonConfig{File: write(t, source)}
	for _, option := range options {
		option(&c)
	}
	k := python.New()
	t.Cleanup(func() { _ = k.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := k.Describe(ctx, config(t, c)); err != nil {
		return k, err
	}
	return k, k.Open(ctx, plugins.Device{Name: "CPU 0", Threads: 2}, config(t, c))
}

func interpreter(path string) func(*resolve.PythonConfig) {
	return func(c *resolve.PythonConfig) { c.Interpreter = path }
}

func batch(records ...string) plugins.Batch {
	list := make([][]byte, len(records))
	for i, record := range records {
		list[i] = []byte(record)
	}
	return plugins.NewBatch(list)
}

// call computes a batch and returns the result of each record as text.
func call(t testing.TB, k plugins.Kernel, records ...string) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	results, err := plugins.Call(ctx, k, batch(records...))
	if err != nil {
		return nil, err
	}
	return texts(results), nil
}

func texts(results *plugins.Results) []string {
	var list []string
	for i := range results.Len() {
		switch result := results.At(i); result.Verdict {
		case plugins.Lines:
			list = append(list, string(bytes.Join(result.Lines, []byte("+"))))
		case plugins.Failed:
			if result.Step != "" {
				result.Message = result.Step + ": " + result.Message
			}
			list = append(list, "failed: "+result.Message)
		case plugins.Columns:
			var values []string
			for _, c := range results.ColumnList() {
				values = append(values, fmt.Sprintf("%s=%s", c.Name, c.AppendValue(nil, i)))
			}
			list = append(list, strings.Join(values, " "))
		default:
			list = append(list, result.Verdict.String())
		}
	}
	return list
}

func expect(t testing.TB, k plugins.Kernel, records, want []string) {
	t.Helper()
	got, err := call(t, k, records...)
	if err != nil {
		t.Fatalf("%v\n%s", err, detail(err))
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got\n  %q, not\n  %q", got, want)
	}
}
