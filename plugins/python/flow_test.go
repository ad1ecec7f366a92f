package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// expectDeferred submits three batches to a kernel that logs what it does, and lets the
// first continue once all are submitted.
func expectDeferred(t *testing.T, k plugins.Kernel, signal string) {
	t.Helper()
	var flight []*plugins.Results
	for i := range 3 {
		flight = append(flight, plugins.Submit(t.Context(), k, batch(fmt.Sprintf(`{"n":%d}`, i))))
	}
	if err := os.WriteFile(signal, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, results := range flight {
		wait(t, results)
		got = append(got, texts(results)...)
	}
	want := []string{
		`x=0 log="launch"`,
		`x=1 log="launch copy launch"`,
		`x=2 log="launch copy launch copy wait launch"`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func wait(t *testing.T, results *plugins.Results) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := results.Wait(ctx); err != nil {
		t.Fatalf("%v\n%s", err, detail(err))
	}
}

// prepare runs ahead in the configured number of threads, and process gets its results
// in order.
func TestPrepare(t *testing.T) {
	k := start(t, `
import threading
meet = threading.Barrier(3, timeout=50)
main = threading.current_thread()
def prepare(batch):
    assert threading.current_thread() is not main
    meet.wait()          # three at a time, or it breaks
    return [n * 10 for n in batch["n"]]
def process(numbers):
    assert threading.current_thread() is main
    return {"x": numbers}
`, func(c *resolve.PythonConfig) { c.IOWorkers = 3 })
	var flight []*plugins.Results
	for i := range 6 {
		flight = append(flight, plugins.Submit(t.Context(), k, batch(fmt.Sprintf(`{"n":%d}`, i))))
	}
	for i, results := range flight {
		wait(t, results)
		if got := texts(results)[0]; got != fmt.Sprintf("x=%d", 10*i) {
			t.Errorf("batch %d: %s", i, got)
		}
	}
}

// Only as much is prepared ahead as keeps process from waiting, however many threads
// there are.
func TestPrepareNoMoreThanNeeded(t *testing.T) {
	k := start(t, `
import threading, time
lock, ahead = threading.Lock(), 0
def prepare(batch):
    global ahead
    with lock: ahead += 1
    return batch
def process(batch):
    global ahead
    time.sleep(0.02)     # every thread has had its time
    with lock: ahead -= 1
    return {"ahead": [ahead]}
`, func(c *resolve.PythonConfig) { c.IOWorkers = 8 })
	var flight []*plugins.Results
	for i := range 20 {
		flight = append(flight, plugins.Submit(t.Context(), k, batch(fmt.Sprintf(`{"n":%d}`, i))))
	}
	var got []string
	for _, results := range flight {
		wait(t, results)
		got = append(got, texts(results)...)
	}
	for i, text := range got[:15] {
		if text != "ahead=1" && text != "ahead=2" && text != "ahead=3" && text != "ahead=4" {
			t.Errorf("batch %d: %s", i, text)
		}
	}
}

func TestPrepareFails(t *testing.T) {
	k := start(t, "def prepare(batch):\n    if batch['n'][0]: raise ValueError('no')\n    return batch\ndef process(batch): return batch")
	if _, err := call(t, k, `{"n":1}`); err == nil || err.Error() != "ValueError: no" || !strings.Contains(detail(err), "in prepare") {
		t.Errorf("%v\n%s", err, detail(err))
	}
	expect(t, k, []string{`{"n":0}`}, []string{"unchanged"})
}

// Many batches pass in every way to run a kernel.
func TestManyBatches(t *testing.T) {
	for name, source := range map[string]string{
		"plain":     "def process(batch): return {'x': batch['n']}",
		"threads":   "def prepare(batch): return batch['n']\ndef process(n): return {'x': n}",
		"processes": "def setup_prepare(ctx): pass\ndef prepare(batch): return batch['n']\ndef process(n): return {'x': n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := start(t, source)
			var flight []*plugins.Results
			for i := range 1000 {
				flight = append(flight, plugins.Submit(t.Context(), k, batch(fmt.Sprintf(`{"n":%d}`, i))))
				if i >= 10 {
					wait(t, flight[i-10])
				}
			}
			for i, results := range flight {
				wait(t, results)
				if got := texts(results)[0]; got != fmt.Sprintf("x=%d", i) {
					t.Fatalf("batch %d: %s", i, got)
				}
			}
		})
	}
}

// Settings are read from the source without running it.
func TestDescribe(t *testing.T) {
	needPython(t)
	k := python.New()
	defer k.Close()
	info, err := k.Describe(t.Context(), config(t, resolve.PythonConfig{File: write(t, `
raise SystemError("this must not run")
import torch, cupy.cuda
from jax import numpy
requires = ["pip>=1,<9999", "json"]
needs_gpu: bool = True
min_memory_mb = 2048
max_workers = 1
if True:
    batch_size = 512
inputs = compute()
try:
    from elsewhere import process
except ImportError:
    pass
def prepare(batch): pass
`)}))
	if err != nil {
		t.Fatal(err)
	}
	if !info.NeedsGPU || info.MinMemory != 2<<30 || info.MaxWorkers != 1 || info.BatchSize != 512 || !info.CanTrim || info.InFlight != 9 ||
		info.Name != "Python" || !strings.HasPrefix(info.Version, "3.") {
		t.Errorf("%+v", info)
	}
	var names []string
	for _, framework := range info.Frameworks {
		name, _, _ := strings.Cut(framework, " ")
		names = append(names, name)
	}
	if !reflect.DeepEqual(names, []string{"cupy", "jax", "torch"}) {
		t.Errorf("%q", info.Frameworks)
	}
}

// Settings that can be evaluated without running the file are. Code that runs only when
// the file is the main program sets none.
func TestDescribeArithmetic(t *testing.T) {
	describe := describer(t)
	for source, want := range map[string]plugins.Info{
		"batch_size = 32 * 2\nmin_memory_mb = 16 * 1024":              {BatchSize: 64, MinMemory: 16 << 30},
		"ROWS = 2 ** 9\nbatch_size: int = ROWS // 2":                  {BatchSize: 256},
		"GPU = True\nneeds_gpu = GPU\nmin_memory_mb = (1 << 10) - 24": {NeedsGPU: true, MinMemory: 1000 << 20},
		"ROWS = 5\nROWS += 1\nbatch_size = ROWS":                      {},
		"batch_size = int('7')":                                       {},
		"batch_size = 9 ** 9 ** 9":                                    {},
		"batch_size = 1 // 0":                                         {},
		"batch_size = 7\nif __name__ == '__main__':\n    batch_size = 1\n    needs_gpu = True\n    inputs = 5":      {BatchSize: 7},
		"SIZE = 64\nif elsewhere():\n    SIZE = 512\nbatch_size = SIZE\nneeds_gpu = True":                           {NeedsGPU: true}, // unknown until it runs
		"if elsewhere():\n    batch_size, needs_gpu = 3, True\n    min_memory_mb = 1\nelse:\n    min_memory_mb = 2": {},
		"if elsewhere():\n    batch_size = 3\nelse:\n    batch_size = 3":                                            {BatchSize: 3},
		"batch_size = 16\nbatch_size *= 2":               {},
		"if __name__ != '__main__':\n    batch_size = 8": {BatchSize: 8},
		"batch_size: int":                                {},
	} {
		info, err := describe(source + "\ndef process(batch): pass\n")
		if err != nil || info.BatchSize != want.BatchSize || info.MinMemory != want.MinMemory || info.NeedsGPU != want.NeedsGPU {
			t.Errorf("%q: %+v, %v", source, info, err)
		}
	}
}

// A file that may define process in an unusual way is not rejected before it runs.
func TestWaysToProcess(t *testing.T) {
	for _, source := range []string{
		"process, other = (lambda batch: {'x': [1]}), 2",
		"for process in [lambda batch: {'x': [1]}]: pass",
		"def load():\n    global process\n    def process(batch): return {'x': [1]}\nload()",
		"while True:\n    def process(batch): return {'x': [1]}\n    break",
	} {
		expect(t, start(t, source), []string{"{}"}, []string{"x=1"})
	}
}

func TestRequirements(t *testing.T) {
	needPython(t)
	site := t.TempDir()
	folder := filepath.Join(site, "imaginary-2.10.1.dist-info")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "METADATA"), []byte("Metadata-Version: 2.1\nName: imaginary\nVersion: 2.10.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", site)
	describe := describer(t)
	for requirement, met := range map[string]bool{
		"imaginary": true, "Imaginary": true, "imaginary>=2.9": true, "imaginary >= 2.10, < 3": true, "imaginary==2.10.1": true,
		"imaginary==2.10.*": true, "imaginary~=2.9": true, "imaginary[extra]>=1": true, "imaginary>=2.9; python_version > '3'": true,
		"imaginary>2.10.1": false, "imaginary>=2.11": false, "imaginary<2.10": false, "imaginary~=3.0": false, "imaginary!=2.10.1": false,
	} {
		encoded, _ := json.Marshal([]string{requirement})
		_, err := describe("requires = " + string(encoded) + "\ndef process(batch): return batch")
		if (err == nil) != met || err != nil && fault.KindOf(err) != fault.Incompatible {
			t.Errorf("%s: %v", requirement, err)
		}
	}
}

func TestContext(t *testing.T) {
	k := start(t, `
import sys, os
seen = {}
def setup(ctx):
    seen.update(config=ctx.config, device=ctx.device, gpu=ctx.gpu, threads=ctx.threads, name=ctx.name,
                first=os.path.samefile(sys.path[0], os.path.dirname(__file__)), module=__name__, argv=len(sys.argv))
def process(batch): return {"x": [seen] * len(batch)}
def close(): print("closed")
`, func(c *resolve.PythonConfig) { c.Config = json.RawMessage(`{"model":"m"}`) })
	expect(t, k, []string{"{}"}, []string{`x={"config":{"model":"m"},"device":"cpu","gpu":null,"threads":2,"name":"CPU 0","first":true,"module":"kernel","argv":1}`})
}

func TestTrim(t *testing.T) {
	k := start(t, "trimmed = 0\ndef trim():\n    global trimmed\n    trimmed += 1\ndef process(batch): return {'x': [trimmed] * len(batch)}")
	trimmer, ok := k.(interface{ Trim(context.Context) error })
	if !ok {
		t.Fatal("it cannot trim")
	}
	if err := trimmer.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, k, []string{"{}"}, []string{"x=1"})
}

// NaN within encoded values fails its record if so configured.
func TestNaNError(t *testing.T) {
	k := start(t, `def process(batch): return [{"x": float("nan")}, {"x": 1}]`, func(c *resolve.PythonConfig) { c.NaN = "error" })
	expect(t, k, []string{"{}", "{}"}, []string{"failed: ValueError: the result contains a value that is not finite (NaN or infinity)", `{"x":1}`})
}

// A batch larger than the retained part of the shared memory is processed, and so
// are the next ones.
func TestLargeBatches(t *testing.T) {
	k := start(t, "def process(batch): return {'again': batch['text']}")
	text := strings.Repeat("0123456789abcdef", 4<<20/16)
	records := make([]string, 17) // of 4 MiB; memory.go keeps 64 MiB
	for i := range records {
		records[i] = `{"text":"` + strconv.Itoa(i) + text + `"}`
	}
	for range 2 {
		got, err := call(t, k, records...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if want := `again="` + strconv.Itoa(i) + text + `"`; got[i] != want {
				t.Fatalf("record %d: %.40s", i, got[i])
			}
		}
	}
}

// A batch is finished when process has returned: reading more of it fails with an
// explanation.
func TestBatchIsOver(t *testing.T) {
	k := start(t, "kept = []\ndef process(batch):\n    kept.append(batch)\n    return {'x': [str(kept[0]['n'])] if len(kept) > 1 else [1]}")
	expect(t, k, []string{`{"n":1}`}, []string{"x=1"})
	_, err := call(t, k, `{"n":2}`)
	if err == nil || !strings.Contains(err.Error(), "this batch is already finished") {
		t.Error(err)
	}
}

// A kernel that no worker has started imports its file in Open, and reports how long that took.
func TestImportsInOpen(t *testing.T) {
	t.Parallel()
	k := start(t, "import time\ntime.sleep(0.01)\ndef process(batch): return batch\n")
	if r, ok := k.(plugins.Reporter); !ok || r.Report().Imports.Took <= 0 || r.Report().Imports.Shared != 0 {
		t.Errorf("the imports of %T are not known", k)
	}
}
