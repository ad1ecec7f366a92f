package python_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// Unusable files are rejected before any record, with the reason.
func TestUnusableFiles(t *testing.T) {
	describe := describer(t)
	const process = "def process(batch): return batch\n"
	for name, test := range map[string]struct {
		source string
		want   string
		trace  string // in the detail
		opened bool   // detected only by Open
	}{
		"syntax":            {"def process(batch)\n    return batch\n", "kernel kernel.py: SyntaxError: ", "def process(batch)", false},
		"null bytes":        {"x = 1\x00\n", "kernel kernel.py: ", "", false},
		"no process":        {"def proces(batch): return batch", "kernel kernel.py: the file defines no process(batch) function", "", false},
		"not a function":    {"process = 3", "kernel kernel.py: the file defines no process(batch) function", "", true},
		"empty":             {"", "kernel kernel.py: the file defines no process(batch) function", "", false},
		"fails on import":   {process + "import no_such_module_of_mine\n", "kernel kernel.py: ModuleNotFoundError: No module named 'no_such_module_of_mine' in /", `kernel.py", line 2, in <module>`, true},
		"setup raises":      {process + "def setup(ctx):\n    raise ValueError('no model')\n", "kernel kernel.py: ValueError: no model", `kernel.py", line 3, in setup`, true},
		"setup exits":       {process + "import sys\ndef setup(ctx): sys.exit('bye')\n", "kernel kernel.py: the kernel called sys.exit('bye')", "", true},
		"setup dies":        {process + "import os\ndef setup(ctx): print('last words'); os._exit(7)\n", "kernel kernel.py: the Python process ended: exit status 7", "last words", true},
		"setup in a lib":    {process + "import json\ndef setup(ctx): json.loads('{')\n", "kernel kernel.py: json.decoder.JSONDecodeError", `kernel.py", line 3, in setup`, true},
		"requires":          {process + "requires = ['no-such-thing>=1.2', 'pip']\n", "kernel kernel.py requires no-such-thing>=1.2, which ", "", false},
		"batch size":        {process + "batch_size = 'many'\n", "kernel kernel.py: line 2: batch_size must be an integer above 0, not 'many'", "", false},
		"needs gpu":         {process + "needs_gpu = 1\n", "kernel kernel.py: line 2: needs_gpu must be True or False, not 1", "", false},
		"inputs":            {process + "inputs = 'text'\n", "kernel kernel.py: line 2: inputs must be a list of names", "", false},
		"unknown framework": {process + "inputs = {'x': 'pytorch'}\n", "kernel kernel.py: line 2: inputs must be a list of names, or a dict that maps each name to one of numpy, torch, ", "", false},
		"no such framework": {process + "inputs = {'x': 'pyclesperanto'}\n", "kernel kernel.py requires ", "", false},
		"only as a program": {"if __name__ == '__main__':\n    " + process, "kernel kernel.py: the file defines no process(batch) function", "", false},
		"exits on import":   {process + "raise SystemExit\n", "kernel kernel.py: the kernel called sys.exit()", "", true},
		"no UTF-8 anywhere": {"x = '\xff'\n" + process, "kernel kernel.py: SyntaxError: ", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := describe(test.source)
			if test.opened {
				if err != nil {
					t.Fatal(err)
				}
				_, err = try(t, test.source)
			}
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Fatalf("got %v, not %s", err, test.want)
			}
			if !strings.Contains(detail(err), test.trace) || strings.Contains(detail(err), "gpurun") || strings.Contains(detail(err), "/json/") {
				t.Errorf("detail: %s", detail(err))
			}
		})
	}
	t.Run("the pip command", func(t *testing.T) {
		_, err := try(t, process+"requires = ['no-such-thing>=1.2']\n")
		if err == nil || !strings.HasSuffix(err.Error(), " -m pip install 'no-such-thing>=1.2'") || fault.KindOf(err) != fault.Incompatible {
			t.Errorf("%v", err)
		}
	})
}

// greeting returns the command with which an interpreter of this version says hello.
func greeting(version string) string {
	hello := `{"version":[` + version + `]}`
	return fmt.Sprintf("printf '\\%03o\\0\\0\\0%s' >&3", len(hello), hello)
}

// Interpreters that are missing, too old, or not Python.
func TestInterpreters(t *testing.T) {
	good := needPython(t)
	dir := t.TempDir()
	fake := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct{ path, want string }{
		"missing":     {filepath.Join(dir, "nothing"), "no such file"},
		"not in PATH": {"no-such-python", "not found"},
		"too old":     {fake("old", greeting("3,8,18")), "is Python 3.8.18; Python kernels need 3.9 or newer"},
		"of old":      {fake("ancient", greeting("2,7,18")), "is Python 2.7.18; Python kernels need 3.9 or newer"},
		"none":        {"/bin/true", "/bin/true is not a working Python interpreter: exit status 0"},
		"broken":      {fake("broken", "echo 'cannot find libpython' >&2; exit 127"), "is not a working Python interpreter: exit status 127: cannot find libpython"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := try(t, "def process(batch): return batch", interpreter(test.path))
			if err == nil || !strings.Contains(err.Error(), test.want) || fault.KindOf(err) != fault.Incompatible {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
		})
	}
	t.Run("no python3", func(t *testing.T) {
		t.Setenv("PATH", dir)
		t.Setenv("VIRTUAL_ENV", "")
		t.Setenv("CONDA_PREFIX", "")
		if _, err := try(t, "def process(batch): return batch"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no python3 is in the PATH %q", dir)) {
			t.Error(err)
		}
	})
	environment := t.TempDir()
	if err := os.Mkdir(filepath.Join(environment, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("VIRTUAL_ENV", "")
			t.Setenv("CONDA_PREFIX", "")
			t.Setenv(variable, environment)
			inside := filepath.Join(environment, "bin", "python")
			_ = os.Remove(inside)
			if _, err := try(t, "def process(batch): return batch"); err == nil || !strings.Contains(err.Error(), "has no interpreter") {
				t.Error(err)
			}
			if err := os.WriteFile(inside, []byte("#!/bin/sh\nGPURUN_TEST_ENVIRONMENT=1 exec "+good+` "$@"`+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			k := start(t, "import os\ndef process(batch): return {'x': [os.environ['GPURUN_TEST_ENVIRONMENT']]}")
			expect(t, k, []string{"{}"}, []string{`x="1"`})
		})
	}
}

// Real interpreters of every version installed on this machine.
func TestVersions(t *testing.T) {
	paths, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions/*/bin/python"))
	if len(paths) == 0 {
		t.Skip("SKIPPED: only one Python here")
	}
	for _, path := range paths {
		version := filepath.Base(filepath.Dir(filepath.Dir(path)))
		t.Run(version, func(t *testing.T) {
			k, err := try(t, "def process(batch): return {'x': [t.upper() for t in batch['text']], 'y': [dict(r) for r in batch]}", interpreter(path))
			if parts := strings.Split(version, "."); parts[0] == "2" || len(parts[1]) == 1 && parts[1] < "9" {
				if err == nil || !strings.Contains(err.Error(), "Python kernels need 3.9 or newer") {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			expect(t, k, []string{`{"text":"é"}`}, []string{`x="É" y={"text":"é"}`})
			_, err = call(t, k, `{"text":5}`)
			if err == nil || !strings.Contains(detail(err), "kernel.py") || strings.Contains(detail(err), "gpurun") {
				t.Errorf("%v\n%s", err, detail(err))
			}
		})
	}
}

// A process that dies reports how, and every batch in flight fails with that error.
func TestDeaths(t *testing.T) {
	for name, test := range map[string]struct{ body, want, detail string }{
		"os._exit":     {"import os; os._exit(9)", "the Python process ended: exit status 9", ""},
		"segfault":     {"import ctypes; ctypes.string_at(0)", "the Python process ended: killed by SIGSEGV", "kernel.py\", line 3 in process"},
		"killed":       {"import os; print('gone'); os.kill(os.getpid(), 9)", "the Python process ended: killed by SIGKILL", "gone"},
		"abort":        {"import os; os.abort()", "the Python process ended: killed by SIGABRT", ""},
		"closes all":   {"import os; os.closerange(3, 99)", "the Python process ended: ", ""},
		"exit a child": {"import os; os.fork() or os._exit(0); os._exit(5)", "the Python process ended: exit status 5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, "def process(batch):\n    if len(batch) == 1: return batch\n    "+test.body)
			first := plugins.Submit(t.Context(), k, batch(`{}`, `{}`))
			second := plugins.Submit(t.Context(), k, batch(`{}`))
			for _, results := range []*plugins.Results{first, second} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := results.Wait(ctx)
				cancel()
				if err == nil || !strings.HasPrefix(err.Error(), test.want) || fault.KindOf(err) != fault.Crash {
					t.Errorf("%s: %v", fault.KindOf(err), err)
				}
				if outside := fault.As(err).Sign == fault.Outside; outside != (name == "killed") {
					t.Errorf("ended from outside: %t", outside)
				}
				if !strings.Contains(detail(err), test.detail) || strings.Contains(detail(err), `"<gpurun`) {
					t.Errorf("detail: %s", detail(err))
				}
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostMemoryOfPython: exhausted host memory is neither a device failure nor an
// ordinary one, whether Python survives it or not.
func TestHostMemoryOfPython(t *testing.T) {
	for name, body := range map[string]string{
		"raised":    "raise MemoryError",
		"allocated": "return [bytearray(1 << 60)]",
		"dies":      "import os, sys; print('terminate called', file=sys.stderr); print('  what():  std::bad_alloc', file=sys.stderr, flush=True); os.abort()",
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, "def process(batch):\n    "+body)
			_, err := call(t, k, `{}`)
			if e := fault.As(err); e == nil || e.Kind != fault.OOM || e.Sign != fault.HostMemory {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
		})
	}
}

// Processes that a kernel forks neither answer for it nor outlive it.
func TestForks(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	k := start(t, fmt.Sprintf(`
import os, time
def process(batch):
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    with open(%q, "a") as file: file.write("%%d\n" %% pid)
    return {"x": [1] * len(batch)}
`, pids))
	for range 3 {
		expect(t, k, []string{"{}"}, []string{"x=1"})
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(data)) {
		pid, _ := strconv.Atoi(line)
		for deadline := time.Now().Add(30 * time.Second); syscall.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("child %d is still running", pid)
			}
		}
	}
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

// A flood of output neither blocks the kernel nor fills the disk.
func TestFlood(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stderr := os.Stderr
	os.Stderr = log
	defer func() { os.Stderr = stderr }()
	k := start(t, `
import os, sys
def process(batch):
    print("begin")
    for i in range(100): os.write(1, b"x" * (1 << 20))
    os.write(2, b"\n")
    sys.stdout.write("no newline")
    return {"x": [1] * len(batch)}
`)
	expect(t, k, []string{"{}", "{}"}, []string{"x=1", "x=1"})
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 16<<20 || !strings.HasPrefix(string(data), "CPU 0: begin\nCPU 0: x") || !strings.Contains(string(data), "bytes omitted") {
		t.Errorf("%d bytes: %.40q", len(data), data)
	}
}

// Exceptions are classified by their text, as for any kernel.
func TestClassification(t *testing.T) {
	k := start(t, `
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
def process(batch): raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.\nmore lines")
`)
	_, err := call(t, k, "{}")
	if fault.KindOf(err) != fault.OOM || err.Error() != "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB." {
		t.Errorf("%s: %v", fault.KindOf(err), err)
	}
}

// A traceback has only the user's own lines, for every exception in the chain.
func TestTraceback(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "helper.py"), []byte("import json\ndef parse(text): return json.loads(text)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "mine.py")
	source := "import helper\ndef process(batch):\n    try: helper.parse('{')\n    except ValueError as e: raise RuntimeError('bad text') from e\n"
	if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	k := start(t, "", func(c *resolve.PythonConfig) { c.File = path })
	_, err := call(t, k, "{}")
	if err == nil || err.Error() != "RuntimeError: bad text" {
		t.Fatal(err)
	}
	text := detail(err)
	for _, want := range []string{"mine.py\", line 3, in process", "helper.py\", line 2, in parse", "JSONDecodeError", "direct cause", "mine.py\", line 4, in process"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "decoder.py") || strings.Contains(text, "gpurun") {
		t.Errorf("contains lines that are not the user's:\n%s", text)
	}
}

// Close ends an Open whose caller has stopped waiting.
func TestHangingSetup(t *testing.T) {
	needPython(t)
	k := python.New()
	c := config(t, resolve.PythonConfig{File: write(t, "import time\ndef process(batch): return batch\ndef setup(ctx): time.sleep(1000)\n")})
	if _, err := k.Describe(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := k.Open(ctx, plugins.Device{Name: "CPU 0"}, c); err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	if err := k.Close(); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("Close: %v", err)
	}
}

func TestTestsHaveAnInterpreter(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Log("SKIPPED: no python3: most tests of this package did nothing")
	}
}
