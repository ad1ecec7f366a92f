package orchestrator_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// A kernel that returns too few values for every batch is reported with the counts of
// the batch: that it returns none for a single record is only an artifact of bisecting.
func TestTooFewValuesNamesTheBatch(t *testing.T) {
	t.Parallel()
	needPython(t)
	d := newJobDir(t, numbered(1000))
	d.write("kernel.py", "def process(batch): return {'x': [1] * (len(batch) - 1)}\n")
	c := d.config(d.join("kernel.py"))
	c.Batching.Size = 128
	_, err := run(t, c)
	wantFault(t, err, fault.Incompatible, "process returned 127 values in column 'x' for 128 records")
}

// The memory that a worker uses includes that of its interpreter, whose parent is another process.
func TestMemoryOfForkedInterpreter(t *testing.T) {
	t.Parallel()
	needPython(t)
	d := newJobDir(t, numbered(2000))
	seen := d.join("seen")
	d.write("kernel.py", fmt.Sprintf(`
import os, time
def setup(ctx):
    global held
    held = bytearray(os.urandom(1) * (300 << 20))
def process(batch):
    if not os.path.exists(%q): time.sleep(0.02)
    return {"x": batch["id"]}
`, seen))
	c := orchestrator.WithScaling(onMachine(d, gputest.New(1), d.join("kernel.py")), 1, 20)
	c.Batching.Size = 1
	c = orchestrator.WithFigures(c, func(f *scaling.Figures) {
		if f.HostEach > 300<<20 {
			touch(seen)
		}
	})
	mustRun(t, d, c)
	if !exists(seen) {
		t.Error("the memory of the kernel was not seen")
	}
}

// Prepare processes, and processes that they start, end with the job, whichever process is
// killed and even if they hang.
func TestPrepareProcessesEndWithJob(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, victim := range []string{"orchestrator", "worker, then orchestrator", "worker and orchestrator"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(100000))
			d.write("kernel.py", `
import subprocess, time
def setup_prepare(ctx):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
def prepare(batch):
    if batch["id"][0] > 100: time.sleep(1000)
    return batch["id"]
def process(ids): return {"x": ids}
`)
			c := d.config(d.join("kernel.py"))
			c.Batching.Size, c.Devices.GPUs = 1, "cpu:1"
			mark := fmt.Sprintf("%s-prepare-%d", strings.ReplaceAll(victim, " ", "-"), os.Getpid())
			job := startDriver(t, driverOf(t, c), mark, "TMPDIR="+shortTemp(t))
			workers := job.awaitWorkers(t, 1)
			job.await(t, "progress")
			// Orchestrator, guard, worker, kernel, Python, prepare processes and their children.
			if n := len(markedProcesses(mark)); n < 7 {
				t.Fatalf("only %d processes run: this test shows nothing", n)
			}
			switch victim {
			case "worker, then orchestrator":
				killAll(workers)
				job.await(t, "worker_lost")
			case "worker and orchestrator":
				killAll(workers)
			}
			_ = job.cmd.Process.Kill()
			job.wait(t)
			awaitGone(t, mark)
		})
	}
}

// A Python kernel isolates the records that make it raise, once it has computed a batch: each
// bad batch takes one exchange, and every record has the outcome that bisecting gives it.
func TestPythonIsolatesRaisingRecords(t *testing.T) {
	t.Parallel()
	needPython(t)
	for name, test := range map[string]struct {
		source, groupBy string
	}{
		"records": {"def process(batch):\n    return [{'id': r['id'], 'h': 1 / (r['id'] % 50 - 7)} for r in batch]\n", ""},
		"columns": {"def process(batch):\n    return {'h': [1 / (i % 50 - 7) for i in batch['id']]}\n", ""},
		"grouped": {"def process(batch):\n    return {'h': [1 / (i % 50 - 7) for i in batch['id']]}\n", "id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 2000
			d := newJobDir(t, numbered(n))
			d.write("kernel.py", test.source)
			c := d.config(d.join("kernel.py"))
			c.Batching.Size, c.Batching.ChunksPerGPU, c.Batching.GroupBy, c.Devices.GPUs = 100, 1, test.groupBy, "cpu:1"
			report, err := run(t, c)
			if err != nil {
				t.Fatal(err)
			}
			output, err := os.ReadFile(c.Output.Path)
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			for i, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
				bad := strings.Contains(line, `"_error":{"kind":"batch","message":"ZeroDivisionError: division by zero"`)
				if !strings.Contains(line, fmt.Sprintf(`"id":%d`, i)) || bad != (i%50 == 7) || !bad && !strings.Contains(line, `"h":`) {
					t.Fatalf("record %d: %s", i, line)
				}
				if bad {
					failed++
				}
			}
			if failed != n/50 || report.Failed != int64(failed) {
				t.Errorf("%d records failed, the report has %d", failed, report.Failed)
			}
			// The first batch is bisected, because a kernel that has not computed anything may
			// fail on everything; the others are not.
			if w := report.Workers[0]; w.Batches != 20 || w.Retries > 19+40 {
				t.Errorf("%d batches, %d retries", w.Batches, w.Retries)
			}
		})
	}
}

// A start reports its phases in order and how long each took, however the interpreter starts. Only
// a forked one has not paid for the imports that it waited for.
func TestStartOfPythonKernel(t *testing.T) {
	t.Parallel()
	needPython(t)
	const source = `
import time
import slow_package
time.sleep(0.1)
def setup(ctx): time.sleep(0.1)
def process(batch):
    time.sleep(0.1)
    return {"x": batch["id"]}
`
	for name, test := range map[string]struct {
		source string
		forked bool
	}{
		"forked":   {source, true},
		"chain":    {source, true},
		"fresh":    {source + "fork = False\n", false},
		"not safe": {source + "import threading\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(4))
			d.write("kernel.py", test.source)
			d.write("slow_package.py", "import time\ntime.sleep(0.3)\n")
			c := d.config(d.join("kernel.py"))
			if name == "chain" { // of processes
				c.Kernel.Name += " → echo"
			}
			c.Batching.Size, c.Devices.GPUs = 2, "cpu:1"
			var phases []orchestrator.StartPhase
			c.Display.OnEvent = func(e orchestrator.Event) {
				if e, is := e.(orchestrator.WorkerPhase); is {
					phases = append(phases, e.Phase)
				}
			}
			report, err := run(t, c)
			if err != nil {
				t.Fatal(err)
			}
			want := []orchestrator.StartPhase{orchestrator.StartImporting, orchestrator.StartLoading, orchestrator.StartFirstBatch, orchestrator.StartDone}
			if !slices.Equal(phases, want) {
				t.Errorf("the phases are %q", phases)
			}
			if report.Start == nil {
				t.Fatal("no start is reported")
			}
			s := report.Start.First
			if s.Importing <= 0 || s.Loading <= 0 || s.FirstBatch <= 0 || s.Imports.Took <= 0 || s.Imports.Took > s.Importing || report.Start.Typical != nil {
				t.Errorf("the start is %+v", *report.Start)
			}
			if len(s.Imports.Slowest) == 0 || s.Imports.Slowest[0].Name != "slow_package" {
				t.Errorf("the slowest imports are %v", s.Imports.Slowest)
			}
			if forked := s.Imports.Shared > 0; forked != test.forked {
				t.Errorf("%s of the imports are shared", s.Imports.Shared)
			}
		})
	}
}
