package python_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// startGuard lets interpreters fork from templates, until end ends the guard. env is added to its
// environment.
func startGuard(t *testing.T, env ...string) (end func()) {
	t.Helper()
	return startLimitedGuard(t, "", env...)
}

func startLimitedGuard(t *testing.T, limit string, env ...string) (end func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "gt-") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	guard, err := template.Start(proc.Command{
		Path: "/bin/sh", Args: []string{"-c", limit + "exec " + self}, Env: append(os.Environ(), append(env, kernelVariable+"=templates")...), Stdout: os.Stderr, Stderr: os.Stderr,
	}, filepath.Join(dir, "t"), func(string, time.Duration) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(template.Variable, template.Offer{Mark: template.NewMark(), Socket: guard.Socket}.String())
	ended := false
	end = func() {
		if !ended {
			ended = true
			guard.Close()
			_ = os.RemoveAll(dir)
			os.Unsetenv(template.Variable)
		}
	}
	t.Cleanup(end)
	return end
}

// moduleLevel is a section of testdata/module_levels.txt.
type moduleLevel struct {
	name, source         string
	fresh, differ, class bool
	twice                bool
	left                 string
}

func moduleLevels(t *testing.T) (list []moduleLevel) {
	t.Helper()
	text, err := os.ReadFile("testdata/module_levels.txt")
	if err != nil {
		t.Fatal(err)
	}
	header := regexp.MustCompile(`(?m)^-- (.*) --\n`)
	ends := header.FindAllStringSubmatchIndex(string(text), -1)
	for i, at := range ends {
		words := strings.Split(string(text[at[2]:at[3]]), ", ")
		end := len(text)
		if i+1 < len(ends) {
			end = ends[i+1][0]
		}
		m := moduleLevel{name: words[0], source: string(text[at[1]:end])}
		for _, word := range words[1:] {
			switch word {
			case "fresh":
				m.fresh = true
			case "differ":
				m.differ = true
			case "class":
				m.class = true
			case "twice":
				m.twice = true
			default:
				m.left = strings.ReplaceAll(strings.TrimPrefix(word, "left "), `\n`, "\n")
			}
		}
		list = append(list, m)
	}
	return list
}

// answers is the end of a kernel file whose value() is the result of every record.
const answers = `
import os as _os
_loaded = _os.getpid()
def process(batch):
    if "how" in batch:
        return {"how": ["forked" if _os.getpid() != _loaded else "fresh"] * len(batch)}
    return {"x": [str(value())] * len(batch)}
`

// outcome is what a worker does with a record: the result, or how it fails.
type outcome struct{ Result, Message, Detail string }

// worker returns a kernel, how its interpreter was started, if it can tell, and what it computes.
func (m moduleLevel) worker(t *testing.T, path, interpreter string) (k plugins.Kernel, how string, done outcome) {
	t.Helper()
	c := resolve.PythonConfig{File: path}
	c.Interpreter = interpreter
	if m.class {
		c.Function = "Kernel"
	}
	if m.twice {
		c.Name, c.Then = "one", []resolve.PythonStep{{Name: "two", File: path}}
	}
	k = python.New()
	t.Cleanup(func() { _ = k.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := k.Describe(ctx, config(t, c))
	if err == nil {
		err = k.Open(ctx, plugins.Device{Name: m.name, Threads: 2}, config(t, c))
	}
	var got []string
	if err == nil && strings.Contains(m.source, "def value(") {
		if got, err = call(t, k, `{"how":1}`); err == nil {
			how = strings.Trim(strings.TrimPrefix(got[0], "how="), `"`)
		}
	}
	if err == nil {
		got, err = call(t, k, `{}`)
	}
	done = outcome{Result: strings.Join(got, " ")}
	if err != nil {
		addresses := regexp.MustCompile("0x[0-9a-f]+")
		done.Message, done.Detail = err.Error(), addresses.ReplaceAllString(strings.ReplaceAll(detail(err), filepath.Dir(path), ""), "0x")
	}
	return k, how, done
}

func (m moduleLevel) write(t *testing.T) string {
	if strings.Contains(m.source, "def value(") {
		return write(t, m.source+answers)
	}
	return write(t, m.source)
}

// openMP returns a library whose function runs a parallel region and returns its number of threads;
// "" if there is no compiler.
func openMP(t *testing.T) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "parallel.so")
	command := exec.Command("cc", "-fopenmp", "-shared", "-fPIC", "-x", "c", "-o", library, "-")
	command.Stdin = strings.NewReader("int threads(void) { int n = 0;\n#pragma omp parallel reduction(+:n) num_threads(2)\nn += 1;\nreturn n; }\n")
	if text, err := command.CombinedOutput(); err != nil {
		t.Logf("NOT TESTED: OpenMP at the module level, because cc -fopenmp does not work here: %v %s", err, text)
		return ""
	}
	return library
}

// Whatever the module level of a file does, its kernel does the same with a template as without, and
// what the module level leaves for the end happens once, at the end.
func TestTemplateModuleLevels(t *testing.T) {
	interpreter := withPackage(t, "numpy")
	library := openMP(t)
	t.Setenv("TEST_OPENMP", library)
	tests := moduleLevels(t)
	if i, half := 0, rand.IntN(2); os.Getenv("GPURUN_TEST_ALL") == "" { // make test-all runs both
		tests = slices.DeleteFunc(tests, func(moduleLevel) bool { i++; return i%2 == half })
	}
	if library == "" {
		tests = slices.DeleteFunc(tests, func(m moduleLevel) bool { return m.name == "OpenMP" })
	}
	want, paths := make([]outcome, len(tests)), make([]string, len(tests))
	t.Run("fresh", func(t *testing.T) {
		for i, m := range tests {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				_, _, want[i] = m.worker(t, m.write(t), interpreter)
			})
		}
	})
	end := startGuard(t)
	anchor, _, _ := moduleLevel{source: "def value(): return 1"}.worker(t, write(t, "def value(): return 1"+answers), interpreter)
	for i, m := range tests {
		paths[i] = m.write(t)
	}
	t.Run("template", func(t *testing.T) {
		for i, m := range tests {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				var workers []plugins.Kernel
				for range 2 {
					k, how, got := m.worker(t, paths[i], interpreter)
					workers = append(workers, k)
					if m.differ && len(workers) == 2 {
						if got == want[i] {
							t.Errorf("both workers compute %+v", got)
						}
					} else if !m.differ && got != want[i] {
						t.Errorf("worker %d:\n%+v\nnot, as without a template,\n%+v", len(workers), got, want[i])
					}
					if m.differ {
						want[i] = got
					}
					if how != "" && (how == "fresh") != m.fresh {
						t.Errorf("worker %d is %s", len(workers), how)
					}
				}
				for _, k := range workers {
					if err := k.Close(); err != nil && want[i].Message == "" {
						t.Errorf("close: %v", err)
					}
				}
			})
		}
	})
	_ = anchor.Close()
	end()
	for i, m := range tests {
		if left := contents(t, filepath.Dir(paths[i])); left != m.left {
			t.Errorf("%s left %q, not %q", m.name, left, m.left)
		}
	}
}

// contents returns the names of the files in a folder, and what they contain.
func contents(t *testing.T, dir string) (all string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != "kernel.py" {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			if packed, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
				text, _ = io.ReadAll(packed)
			}
			all += fmt.Sprintf("%s:%s", name, text)
		}
	}
	return all
}

// A forked interpreter that waits for a lock that no thread holds, or that a framework refuses to work
// in, is replaced by a fresh one, and so are those after it.
func TestForkedInterpreterFails(t *testing.T) {
	interpreter := needPython(t)
	if waits, _ := os.ReadFile("/proc/self/task/" + fmt.Sprint(os.Getpid()) + "/wchan"); waits == nil {
		t.Skip("NOT TESTED: this system does not tell what a thread waits for")
	}
	python.SetHangAfter(t, 2*time.Second)
	for name, inFork := range map[string]string{
		"hangs":   "lock.acquire()",
		"refuses": "raise RuntimeError('Cannot re-initialize CUDA in forked subprocess')",
	} {
		t.Run(name, func(t *testing.T) {
			startGuard(t)
			m := moduleLevel{name: name, source: `
import os, threading
lock, loaded = threading.Lock(), os.getpid()
lock.acquire()
def setup():
    if os.getpid() != loaded:
        ` + inFork + `
def value(): return 1
`}
			path := m.write(t)
			for range 2 {
				_, how, got := m.worker(t, path, interpreter)
				if how != "fresh" || got.Result != `x="1"` {
					t.Errorf("%s: %+v", how, got)
				}
			}
		})
	}
}

// A forked interpreter has its own environment, also in /proc, and no descriptor that it was not
// given: neither the template's nor those of another worker.
func TestTemplateChildOwnsItsState(t *testing.T) {
	t.Setenv("GPURUN_WORKER_MARK", "11111")
	startGuard(t, "GPURUN_WORKER_MARK=00000", "OMP_NUM_THREADS=1")
	t.Setenv("OMP_NUM_THREADS", "2")
	const source = `
import os, numpy, sys
opened = open("/dev/zero")
def threads():
    import ctypes
    path = next(line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line)
    return ctypes.CDLL(path).scipy_openblas_get_num_threads64_()
def process(batch):
    marks = [entry.decode() for entry in open("/proc/self/environ", "rb").read().split(b"\0") if b"_MARK=" in entry]
    links = {}
    for n in os.listdir("/proc/self/fd"):
        try: links[int(n)] = os.readlink("/proc/self/fd/" + n)
        except OSError: pass
    return [{"marks": sorted(marks), "same": marks == ["%s=%s" % (m.split("=")[0], os.environ[m.split("=")[0]]) for m in marks],
             "threads": os.environ["OMP_NUM_THREADS"], "blas": threads(), "links": links,
             "lead": os.getpgid(0) == os.getpid()}]
`
	type state struct {
		Marks   []string
		Same    bool
		Threads string
		BLAS    int
		Links   map[int]string
		Lead    bool
	}
	mark, _, _ := strings.Cut(os.Getenv(template.Variable), ":")
	path := write(t, source)
	var both [2]state
	for i := range both {
		k := start(t, "", interpreter(withPackage(t, "numpy")), func(c *resolve.PythonConfig) { c.File = path })
		got, err := call(t, k, "{}")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got[0]), &both[i]); err != nil {
			t.Fatal(err)
		}
	}
	first := both[0]
	if want := []string{"GPURUN_KERNEL_MARK=" + mark, "GPURUN_WORKER_MARK=11111"}; !slices.Equal(first.Marks, want) || !first.Same {
		t.Errorf("marks %q, not %q; in os.environ, too: %t", first.Marks, want, first.Same)
	}
	if first.Threads != "2" || first.BLAS != 2 {
		t.Errorf("threads: variable %s, OpenBLAS %d", first.Threads, first.BLAS)
	}
	if !first.Lead {
		t.Error("it does not lead its group")
	}
	// The channel, reserved ones (the memory was descriptor 4, and its mapping has a copy), what the
	// file has opened, and the lifeline.
	want := []string{"/dev/null 0", "/dev/null 5", "/dev/null 6", "/dev/null 7", "/dev/zero 8", "/memfd", "pipe", "pipe 1", "pipe 2", "socket 3"}
	var open []string
	for number, link := range first.Links {
		kind, private, _ := strings.Cut(link, ":")
		ours, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", number))
		if number > 2 && kind != "/memfd" && err == nil && ours == link || strings.HasPrefix(link, "/proc/") {
			continue // whoever started the test has left it open; memories of other tests have the same name
		}
		if number <= 8 {
			kind += fmt.Sprintf(" %d", number)
		}
		open = append(open, kind)
		if private == "" || kind == "/memfd" {
			continue
		}
		for _, other := range both[1].Links {
			if link == other {
				t.Errorf("both workers hold descriptor %d, %s", number, link)
			}
		}
	}
	if slices.Sort(open); !slices.Equal(open, want) {
		t.Errorf("open: %q, not %q", open, want)
	}
}

// Prepare processes fork from a template of their own, which sees no GPU. One that dies takes nothing
// else with it.
func TestTemplatePrepareProcesses(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
	const source = `
import os
DEVICE, loaded = os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()
def setup_prepare(ctx): pass
def prepare(batch):
    if "die" in batch: os._exit(3)
    return [DEVICE, os.getpid() != loaded]
def process(prepared): return [{"prepare": prepared, "process": [DEVICE, os.getpid() != loaded]}]
`
	answer := func(forked bool) string {
		return fmt.Sprintf(`{"prepare":["",%t],"process":["GPU-7",%t]}`, forked, forked)
	}
	var failed []string
	for _, forked := range []bool{false, true} {
		if forked {
			startGuard(t)
		}
		k := start(t, source)
		expect(t, k, []string{"{}"}, []string{answer(forked)})
		_, err := call(t, k, `{"die":1}`)
		if err == nil {
			t.Fatal("no error")
		}
		failed = append(failed, err.Error()+detail(err))
		expect(t, k, []string{"{}"}, []string{answer(forked)})
	}
	if failed[0] != failed[1] {
		t.Errorf("with a template: %s\nwithout: %s", failed[1], failed[0])
	}
}

// The template of prepare processes imports while that of the main process does: each waits for the other.
func TestTemplatesImportTogether(t *testing.T) {
	startGuard(t)
	k := start(t, `import os, time
mine = "no GPU" if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else "GPU"
folder = os.path.dirname(__file__)
open(os.path.join(folder, mine), "w").close()
for _ in range(1000):
    together = {"no GPU", "GPU"} <= set(os.listdir(folder))
    if together:
        break
    time.sleep(0.01)
def setup_prepare(ctx): pass
def prepare(batch): return together
def process(prepared): return [{"together": together and prepared}]
`)
	expect(t, k, []string{"{}"}, []string{`{"together":true}`})
}

// A file that is edited while a template has it: every worker runs, and reports, the version that was
// loaded.
func TestTemplateKeepsEditedFile(t *testing.T) {
	startGuard(t)
	path := write(t, "VERSION = 1\ndef process(batch): return {'x': [VERSION] * len(batch)}")
	var all [][]plugins.Source
	for range 2 {
		k := start(t, "", func(c *resolve.PythonConfig) { c.File = path })
		expect(t, k, []string{"{}"}, []string{"x=1"})
		all = append(all, k.(plugins.Reporter).Report().Sources)
		if err := os.WriteFile(path, []byte("VERSION = 2\ndef process(batch): return {'x': [VERSION] * len(batch)}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(all[0]) == 0 || !slices.Equal(all[0], all[1]) {
		t.Errorf("sources: %v, then %v", all[0], all[1])
	}
}

// The files of a chain find their own modules first, in whatever order they import them.
func TestTemplateChainOfFolders(t *testing.T) {
	var paths []string
	for _, name := range []string{"one", "two"} {
		path := write(t, "def setup():\n    global value\n    import "+name+"_inner, inner\n    value = inner.NAME\ndef process(batch): return [{**r, '"+name+"': value} for r in map(dict, batch)]")
		for file, text := range map[string]string{"inner.py": "NAME = '" + name + "'", name + "_inner.py": ""} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, path)
	}
	chained := func(c *resolve.PythonConfig) {
		c.File, c.Name, c.Then = paths[0], "one", []resolve.PythonStep{{Name: "two", File: paths[1]}}
	}
	want, err := call(t, start(t, "", chained), "{}")
	if err != nil {
		t.Fatal(err)
	}
	startGuard(t)
	expect(t, start(t, "", chained), []string{"{}"}, want)
}

// A guard that can open no more files, and then a template that cannot, refuse: no worker fails or
// waits.
func TestTemplateGuardWithoutDescriptors(t *testing.T) {
	interpreter := withPackage(t, "numpy")
	startLimitedGuard(t, "ulimit -n 26; ")
	m := moduleLevel{source: "def value(): return 1"}
	path, ways := m.write(t), map[string]int{}
	for i := 0; i < 26 && ways["fresh"] < 3; i++ {
		_, how, got := m.worker(t, path, interpreter)
		if ways[how]++; got.Result != `x="1"` {
			t.Errorf("%s: %+v", how, got)
		}
	}
	if ways["forked"] == 0 || ways["fresh"] == 0 {
		t.Errorf("this test shows nothing: %v", ways)
	}
}
