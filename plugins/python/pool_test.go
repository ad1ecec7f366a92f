package python_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// submit sends batches of one record each and returns the results of each, or its error.
func submit(t *testing.T, k plugins.Kernel, records ...string) []string {
	t.Helper()
	var flight []*plugins.Results
	for _, record := range records {
		flight = append(flight, plugins.Submit(t.Context(), k, batch(record)))
	}
	var got []string
	for _, results := range flight {
		select {
		case <-results.Done():
		case <-time.After(time.Minute):
			t.Fatal("no results within a minute")
		}
		if err := results.Wait(t.Context()); err != nil {
			got = append(got, fmt.Sprintf("%s: %v", fault.KindOf(err), err))
			continue
		}
		got = append(got, texts(results)...)
	}
	return got
}

func numbered(count int) (records []string) {
	for i := range count {
		records = append(records, fmt.Sprintf(`{"n":%d}`, i))
	}
	return records
}

// expectSame checks that got is want.
func expectSame(t *testing.T, got, want []string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n  %q, not\n  %q", got, want)
	}
}

// waitGone waits until a process has exited.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// With setup_prepare, prepare runs in other processes, which see no GPU and run nothing
// else of the kernel. process gets what it returned, in order.
func TestPrepareProcesses(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	k := start(t, `
import os
def setup_prepare(ctx):
    global factor
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and ctx.device == "cpu" and ctx.gpu is None
    assert ctx.threads == 1 and os.environ["OMP_NUM_THREADS"] == "1"
    factor = ctx.config["factor"]
def prepare(batch):
    assert "model" not in globals()
    return os.getpid(), [n * factor for n in batch["n"]]
def setup(ctx):
    global model
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    model = 1
def process(prepared):
    assert "factor" not in globals()
    pid, numbers = prepared
    return {"x": numbers, "elsewhere": [pid != os.getpid() for _ in numbers]}
`, func(c *resolve.PythonConfig) { c.Config = []byte(`{"factor":10}`) })
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("x=%d elsewhere=true", 10*i))
	}
	expectSame(t, submit(t, k, numbered(40)...), want)
}

// process may take the batch too. A member that some records lack costs only those.
func TestProcessWithBatch(t *testing.T) {
	for name, setup := range map[string]string{"processes": "def setup_prepare(ctx): pass\n", "threads": ""} {
		t.Run(name, func(t *testing.T) {
			k := start(t, setup+`
def prepare(batch): return [n * 10 for n in batch["n"]]
def process(batch, tens):
    assert len(batch) == len(tens)
    return {"x": [a + b for a, b in zip(batch["m"], tens)]}
`)
			expect(t, k, []string{`{"n":1,"m":2}`, `{"m":3}`, `{"n":4,"m":5}`}, []string{"x=12", `failed: the record has no member "n"`, "x=45"})
			expect(t, k, []string{`{}`}, []string{`failed: the record has no member "n"`})
			got, err := call(t, k, `{"n":1}`)
			if name == "processes" { // the worker bisects it
				if err == nil || err.Error() != `the record has no member "m"` {
					t.Error(got, err)
				}
			} else if err != nil || got[0] != `failed: the record has no member "m"` {
				t.Error(got, err)
			}
			expect(t, k, []string{`{"n":1,"m":2}`}, []string{"x=12"})
		})
	}
}

// Whatever numpy can hold arrives as it was, in memory that is process's own.
func TestHandoverOfArrays(t *testing.T) {
	k := start(t, `
import numpy
def values():
    wide = numpy.arange(6000, dtype="int32").reshape(60, 100)
    return {
        "plain": wide, "strided": wide[::2, ::3], "fortran": numpy.asfortranarray(wide), "reversed": wide[:, ::-1],
        "empty": numpy.zeros((0, 7), "float32"), "scalar": numpy.float32(2.5), "zero": numpy.array(7),
        "half": numpy.ones(5000, "float16"), "flags": numpy.ones(5000, bool), "dates": numpy.arange(3000).astype("M8[s]"),
        "objects": numpy.array([{"a": 1}, None, "text"], object), "small": numpy.arange(3),
        "nested": [(wide, {"again": wide})], "record": numpy.zeros(2000, [("a", "i4"), ("b", "f8")]),
    }
def setup_prepare(ctx): pass
kept = numpy.zeros(10000)
def prepare(batch):
    global kept
    kept += 1           # reused: process must not see later batches in it
    return values(), kept
earlier = []
def process(prepared):
    found, counted = prepared
    for name, value in values().items():
        if name == "nested":
            ((a, b),) = found[name]
            assert (a == value[0][0]).all() and b["again"] is a
            continue
        assert type(found[name]) is type(value), name
        assert (numpy.asarray(found[name]) == numpy.asarray(value)).all(), name
        assert numpy.asarray(found[name]).dtype == numpy.asarray(value).dtype and numpy.shape(found[name]) == numpy.shape(value), name
    assert found["fortran"].flags.f_contiguous
    found["plain"] += 1         # it may be changed
    earlier.append((counted, counted.copy()))
    for now, then in earlier:
        assert (now == then).all() and now[0] == now[-1]
    return {"x": [1]}
`, interpreter(withPackage(t, "numpy")))
	for range 20 {
		expect(t, k, []string{`{"n":1}`}, []string{"x=1"})
	}
}

// The same with torch's tensors.
func TestHandoverOfTensors(t *testing.T) {
	k := start(t, `
import torch
def values():
    wide = torch.arange(6000, dtype=torch.int64).reshape(60, 100)
    return {
        "plain": wide, "transposed": wide.t(), "strided": wide[::2, ::3], "bfloat": torch.ones(5000, dtype=torch.bfloat16),
        "empty": torch.zeros((0, 7)), "scalar": torch.tensor(2.5), "bool": torch.ones(5000, dtype=torch.bool),
        "complex": torch.ones(3000, dtype=torch.complex64).conj(), "small": torch.arange(3), "sparse": torch.eye(3).to_sparse(),
    }
def setup_prepare(ctx): pass
def prepare(batch): return values(), [torch.full((2000,), n) for n in batch["n"]]
def process(prepared):
    found, numbers = prepared
    for name, value in values().items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(found[name].to_dense(), value.to_dense()), name
    found["plain"] += 1
    return {"x": [int(n[-1]) for n in numbers]}
`, interpreter(withPackage(t, "torch")))
	for i := range 5 {
		expect(t, k, []string{fmt.Sprintf(`{"n":%d}`, i)}, []string{fmt.Sprintf("x=%d", i)})
	}
}

// Values that do not fit into the shared memory, alone or together, go through files.
func TestHandoverOfLargeValues(t *testing.T) {
	python.SetPreparedSize(t, 1<<20)
	k := start(t, `
def setup_prepare(ctx): pass
def prepare(batch): return [bytearray(b"%d" % n) * 700_000 for n in batch["n"]], __import__("pickle").PickleBuffer(bytearray(2_000_000))
def process(prepared): return {"x": [len(data) for data in prepared[0]], "y": [chr(data[-1]) for data in prepared[0]]}
`)
	var want []string
	for i := range 8 {
		want = append(want, fmt.Sprintf(`x=700000 y="%d"`, i))
	}
	expectSame(t, submit(t, k, numbered(8)...), want)
}

func TestHandoverOfStrangeValues(t *testing.T) {
	k := start(t, `
def setup_prepare(ctx): pass
class Own:
    def __init__(self, value): self.value = value
def prepare(batch): return {"lock": lambda: (x for x in ()), "batch": lambda: batch, "own": lambda: Own(5)}[batch["what"][0]]()
def process(own): return {"x": [own.value]}
`)
	expect(t, k, []string{`{"what":"own"}`}, []string{"x=5"})
	for what, want := range map[string]string{
		"lock":  "prepare returned a value that cannot be passed to process: TypeError: cannot pickle 'generator' object; return numpy arrays",
		"batch": "a batch cannot be copied or sent to another process",
	} {
		if _, err := call(t, k, fmt.Sprintf(`{"what":%q}`, what)); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(what, err)
		}
	}
}

// A prepare process that raises, exits or is killed costs only its own batch; results stay
// in order and it is replaced.
func TestPrepareProcessFails(t *testing.T) {
	k := start(t, `
import os, signal, sys
def setup_prepare(ctx): pass
def prepare(batch):
    n = batch["n"][0]
    print("preparing", n)
    if n == 1: raise ValueError("no")
    if n == 3: os.kill(os.getpid(), signal.SIGKILL)
    if n == 5: os._exit(3)
    if n == 6: sys.exit(4)
    if n == 7: os.abort()
    return n
def process(n): return {"x": [n]}
`)
	want := []string{
		"x=0", "batch: ValueError: no", "x=2", "crash: a prepare process ended: killed by SIGKILL", "x=4",
		"crash: a prepare process ended: exit status 3", "batch: the kernel called sys.exit(4)", "crash: a prepare process ended: killed by SIGABRT", "x=8",
	}
	expectSame(t, submit(t, k, numbered(9)...), want)
	expectSame(t, submit(t, k, numbered(9)...), want)
	_, err := call(t, k, `{"n":3}`)
	if e := fault.As(err); e == nil || e.Sign != fault.Outside {
		t.Errorf("%+v", e)
	}
	if _, err := call(t, k, `{"n":1}`); !strings.Contains(detail(err), "in prepare") {
		t.Error(detail(err))
	}
}

// A prepare process that is killed while it is idle costs nothing.
func TestIdlePrepareProcessKilled(t *testing.T) {
	k := start(t, "import os\ndef setup_prepare(ctx): pass\ndef prepare(batch): return os.getpid()\ndef process(pid): return {'pid': [pid]}")
	killed := map[string]bool{}
	for range 4 {
		got, err := call(t, k, "{}")
		if err != nil && fault.KindOf(err) == fault.Crash { // the kill and this batch crossed
			continue
		}
		if err != nil || killed[got[0]] {
			t.Fatal(got, err)
		}
		killed[got[0]] = true
		var pid int
		if _, err := fmt.Sscanf(got[0], "pid=%d", &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitGone(t, pid)
	}
}

// Prepare processes and their children end with the kernel, also when they hang and when
// their children hold the pipe.
func TestPrepareProcessesEnd(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	k := start(t, `
import os, subprocess, time
def note(pid):
    with open(os.environ["PIDS"], "a") as file: file.write("%d\n" % pid)
def setup_prepare(ctx):
    note(os.getpid())
    if os.fork() == 0:
        note(os.getpid())
        time.sleep(1000)
    note(subprocess.Popen(["sleep", "1000"]).pid)
def prepare(batch):
    if batch["n"][0]: time.sleep(1000)
    return 1
def process(one): return {"x": [one]}
`, func(*resolve.PythonConfig) { t.Setenv("PIDS", pids) })
	expect(t, k, []string{`{"n":0}`}, []string{"x=1"})
	plugins.Submit(t.Context(), k, batch(`{"n":1}`))
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(data))
	if len(list) != 6 { // two processes with two children each
		t.Errorf("%q", list)
	}
	for _, text := range list {
		var pid int
		_, _ = fmt.Sscan(text, &pid)
		waitGone(t, pid)
	}
}

// setup_prepare fails like setup.
func TestSetupPrepareFails(t *testing.T) {
	for source, want := range map[string]string{
		"def setup_prepare(ctx): raise ValueError('no vocabulary')\ndef prepare(batch): pass\ndef process(x): pass":      "kernel kernel.py: ValueError: no vocabulary",
		"import os\ndef setup_prepare(ctx): os._exit(3)\ndef prepare(batch): pass\ndef process(x): pass":                 "kernel kernel.py: a prepare process ended: exit status 3",
		"async def setup_prepare(ctx): pass\ndef prepare(batch): pass\ndef process(x): pass":                             "setup_prepare is async",
		"def setup_prepare(ctx): pass\ndef process(x): pass":                                                             "defines setup_prepare(ctx) but no prepare(batch) function",
		"def setup_prepare(ctx): raise ValueError('no vocabulary')\ndef prepare(batch): pass\ndef process(x): pass\n1/0": "ZeroDivisionError",
	} {
		_, err := try(t, source)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// No more processes run than this worker's share of the cores, whatever --io-workers says.
func TestPrepareProcessesWithinShare(t *testing.T) {
	pids := t.TempDir()
	k := start(t, `
import os, time
def setup_prepare(ctx): open(os.path.join(os.environ["PIDS"], str(os.getpid())), "w").close()
def prepare(batch):
    time.sleep(0.02)
    return 1
def process(one): return {"x": [one]}
`, func(c *resolve.PythonConfig) { c.IOWorkers = 8; t.Setenv("PIDS", pids) })
	submit(t, k, numbered(60)...)
	entries, err := os.ReadDir(pids)
	if err != nil || len(entries) != 2 { // Threads in try
		t.Error(len(entries), err)
	}
}

// In a chain, the first step may have prepare processes, and later steps read the batch as
// usual.
func TestPrepareProcessesInChain(t *testing.T) {
	const first = "def setup_prepare(ctx): pass\ndef prepare(batch): return [a * 10 for a in batch['a']]\ndef process(tens): return {'x': tens}"
	k := start(t, first, then(t, "def prepare(batch): return [x + b for x, b in zip(batch['x'], batch['b'])]\ndef process(sums): return {'y': sums}"))
	for range 3 {
		expect(t, k, []string{`{"a":1,"b":2}`, `{"a":3}`, `{"a":5,"b":6}`, `{"b":1}`},
			[]string{"x=10 y=12", `failed: second.py: the record has no member "b"`, "x=50 y=56", `failed: first.py: the record has no member "a"`})
	}
	_, err := try(t, "def process(batch): return batch", then(t, first))
	const want = "kernel second.py: setup_prepare(ctx) works only in the first step of a chain"
	if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// The workers of a job together run no more prepare processes than there are cores, apart
// from the first of each.
func TestPrepareProcessesShareCores(t *testing.T) {
	pids := t.TempDir()
	t.Setenv("PIDS", pids)
	t.Setenv("GPURUN_WORKER_MARK", fmt.Sprintf("test-%d", os.Getpid()))
	const source = `
import os, time
def setup_prepare(ctx): open(os.path.join(os.environ["PIDS"], str(os.getpid())), "w").close()
def prepare(batch):
    time.sleep(0.01)
    return 1
def process(one): return {"x": [one]}
`
	count := func() int {
		entries, err := os.ReadDir(pids)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	first := start(t, source)
	submit(t, first, numbered(60)...)
	if n := count(); n > resources.Cores() {
		t.Errorf("%d processes", n)
	}
	before := count()
	second := start(t, source)
	submit(t, second, numbered(60)...)
	if n := count() - before; n != 1+min(1, resources.Cores()-before) {
		t.Errorf("%d and %d processes on %d cores", before, n, resources.Cores())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); resources.Cores() > 1 && count()-before < 2; {
		submit(t, second, numbered(60)...)
		if time.Now().After(deadline) {
			t.Fatal("no process starts, although others have ended")
		}
	}
}

// All workers of a job share the seats of prepare processes.
func TestSeatsAreShared(t *testing.T) {
	for i := range resources.Cores() {
		t.Setenv("GPURUN_WORKER_MARK", proc.NewMark())
		leave, ok := python.TakeSeat()
		if !ok {
			t.Fatalf("seat %d is taken", i)
		}
		defer leave()
	}
	t.Setenv("GPURUN_WORKER_MARK", proc.NewMark())
	if _, ok := python.TakeSeat(); ok && runtime.GOOS == "linux" {
		t.Error("another worker gets another seat")
	}
}
