package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/orchestrator"
)

// mixed returns n records of every sort: good, dropped, doubled, rejected, invalid
// JSON, already marked in the input; and blank lines.
func mixed(n int) string {
	var b strings.Builder
	for i := range n {
		switch i % 40 {
		case 7:
			fmt.Fprintf(&b, "no JSON %d\n", i)
		case 13:
			fmt.Fprintf(&b, "{\"id\":%d,\"_error\":\"old\"}\n", i)
		case 19:
			fmt.Fprintf(&b, "{\"id\":%d,\"do\":\"fail\"}\n", i)
		case 23:
			fmt.Fprintf(&b, "{\"id\":%d,\"do\":\"drop\"}\n", i)
		case 29:
			fmt.Fprintf(&b, "{\"id\":%d,\"do\":\"two\"}\n", i)
		case 31:
			fmt.Fprintf(&b, "\n{\"id\":%d}\n", i)
		default:
			fmt.Fprintf(&b, "{\"id\":%d,\"text\":%q}\n", i, strings.Repeat("x", i%100))
		}
	}
	return b.String()
}

// variant is a way to run a job that must survive.
type variant struct {
	name    string
	records int
	change  func(d jobDir, c *orchestrator.Config)

	once     sync.Once
	expected map[string]string
}

// variants are run once undisturbed and often disturbed.
var variants = []*variant{
	{name: "plain", records: 600, change: func(jobDir, *orchestrator.Config) {}},
	{name: "errors apart", records: 600, change: func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors.jsonl") }},
	{name: "some of it", records: 800, change: func(_ jobDir, c *orchestrator.Config) { c.Input.Offset, c.Input.Limit = 101, 603 }},
	{name: "cut by bytes", records: 600, change: func(d jobDir, c *orchestrator.Config) {
		c.Input.Split, c.Output.Errors = input.SplitBytes, d.join("errors.jsonl")
	}},
	{name: "work folder", records: 600, change: func(d jobDir, c *orchestrator.Config) {
		c.Resume.WorkDir = d.join("work")
		if err := os.MkdirAll(c.Resume.WorkDir, 0o777); err != nil {
			d.t.Fatal(err)
		}
	}},
	compressedInput,
	severalFiles,
	parquetInput,
	fetches,
	grouped,
	adaptive,
	compressed,
	inParts,
}

// compressed writes a compressed output.
var compressed = &variant{name: "compressed", records: 600, change: func(d jobDir, c *orchestrator.Config) {
	c.Output.Format, c.Output.Path = "jsonl.zst", d.join("out.jsonl.zst")
}}

// compressedParts writes compressed parts.
var compressedParts = &variant{name: "compressed parts", records: 600, change: func(d jobDir, c *orchestrator.Config) {
	inParts.change(d, c)
	c.Output.Format = "jsonl.gz"
}}

// adaptive has a GPU whose number of workers changes while the job runs, about every 100
// ms.
var adaptive = &variant{name: "adaptive", records: 1200, change: func(_ jobDir, c *orchestrator.Config) {
	c.Devices.GPUs = adaptiveGPU
}}

// adaptiveGPU stands for the simulated GPU of such a job: a driver gets a job's Config as
// JSON.
const adaptiveGPU = "adaptive"

// adapted puts a job that asks for it on that GPU. Units of encoded outputs are short.
func adapted(c orchestrator.Config) orchestrator.Config {
	c = orchestrator.WithUnitBytes(c, 2000)
	if c.Devices.GPUs != adaptiveGPU {
		return c
	}
	c.Devices.GPUs = "all"
	c = orchestrator.WithDevices(c, gpu.Options{NVML: gputest.New(1), Env: gputest.NoEnv})
	return orchestrator.WithScaling(c, 6, 60)
}

// grouped computes records in groups of similar size, in batches of any order.
var grouped = &variant{name: "grouped", records: 1200, change: func(_ jobDir, c *orchestrator.Config) {
	c.Batching.GroupBy, c.Batching.Cost, c.Resume.Checkpoint = "text", 400, 150*time.Millisecond
}}

// inParts writes the output in parts over an older one, with a separate errors file.
var inParts = &variant{name: "parts", records: 600, change: func(d jobDir, c *orchestrator.Config) {
	c.Output.Path, c.Output.PartBytes, c.Output.Errors, c.Output.Force = d.join("out")+"/", 6000, d.join("errors.jsonl"), true
	if err := os.MkdirAll(c.Output.Path, 0o777); err != nil {
		d.t.Fatal(err)
	}
	d.write("out/part-00000.jsonl", "{}\n")
	d.write("out.manifest.json", `{"format":"gpurun-parts","version":1,"records":1,"parts":[{"name":"part-00000.jsonl"}]}`)
}}

// start creates the input and the Config. Segments are small and many.
func (v *variant) start(t *testing.T) (jobDir, orchestrator.Config) {
	t.Helper()
	d := newJobDir(t, mixed(v.records))
	c := d.config("test-work")
	c.Batching.Size, c.Batching.ChunksPerGPU, c.Resume.Checkpoint = 8, 4, 50*time.Millisecond
	c.Kernel.Config = []byte(`{"Milliseconds":6}`)
	v.change(d, &c)
	return d, c
}

// undisturbed returns what the files must contain.
func (v *variant) undisturbed(t *testing.T) map[string]string {
	t.Helper()
	v.once.Do(func() {
		d, c := v.start(t)
		c.Kernel.Config = nil                       // without its pauses,
		c.Batching.GroupBy, c.Batching.Cost = "", 0 // and in input order
		mustRun(t, d, adapted(c))
		v.expected = results(d, c)
	})
	if v.expected == nil {
		t.Fatal("the undisturbed run failed")
	}
	return v.expected
}

// results returns a job's files.
func results(d jobDir, c orchestrator.Config) map[string]string {
	d.t.Helper()
	files := outputFiles(d, c)
	if c.Output.Errors != "" {
		files["errors.jsonl"] = strings.ReplaceAll(d.read("errors.jsonl"), d.path, "") // marks may name input files
	}
	// Where a record failed, and on which device, is not part of its result.
	failures := d.read(strings.TrimPrefix(jobFolder(c), d.path+"/") + "/failures.jsonl")
	failures = strings.ReplaceAll(failures, d.path, "")
	files["failures.jsonl"] = regexp.MustCompile(`,"device":"[^"]*"`).ReplaceAllString(failures, "")
	for _, a := range c.Output.Arrays {
		for _, path := range []string{a.Path, strings.TrimSuffix(a.Path, ".npy") + ".mask.npy"} {
			if name := filepath.Base(path); c.Output.Errors == "" || path == a.Path {
				files[name] = d.read(name)
			}
		}
	}
	if folder := strings.TrimPrefix(jobFolder(c), d.path+"/"); exists(d.join(folder + "/failed.jsonl")) {
		if c.Output.Errors == "" {
			files["failed.jsonl"] = strings.ReplaceAll(d.read(folder+"/failed.jsonl"), d.path, "")
		}
	}
	return files
}

// outputFiles returns the output: a file, or the files of a folder.
func outputFiles(d jobDir, c orchestrator.Config) map[string]string {
	d.t.Helper()
	if name := filepath.Base(c.Output.Path); !strings.HasSuffix(c.Output.Path, "/") {
		return map[string]string{name: d.read(name)}
	}
	files := map[string]string{"out.manifest.json": d.read("out.manifest.json")}
	for _, name := range tree(d.join("out")) {
		files["out/"+name] = d.read("out/" + name)
	}
	return files
}

func jobFolder(c orchestrator.Config) string {
	return orchestrator.FolderPath(c)
}

// checkFinished: the files equal those of an undisturbed run to the byte, so each
// record is there once, and nothing else remains.
func checkFinished(t *testing.T, d jobDir, c orchestrator.Config, want map[string]string, temp string) {
	t.Helper()
	if diff := cmp.Diff(want, results(d, c)); diff != "" {
		t.Errorf("differs from an undisturbed run: %s", diff)
	}
	for _, name := range tree(d.path) {
		name = strings.TrimPrefix(name, strings.TrimPrefix(jobFolder(c), d.path+"/")+"/")
		if name == "data" || strings.HasPrefix(name, "data/") { // inputs, and files that records name
			continue
		}
		if _, part := want[name]; part {
			continue
		}
		switch name {
		case "in.jsonl", "kernel.py", "helper.py", "stray.py", "out", "out.gpurun", "job.json", "report.json", "lock",
			"work", "out.jsonl.gpurun", "out.jsonl.zst.gpurun", strings.TrimPrefix(jobFolder(c), d.path+"/"), "logs":
		default:
			if ok, _ := filepath.Match("logs/worker-*.log", name); !ok {
				t.Errorf("left: %s", name)
			}
		}
	}
	if left := tree(temp); len(left) > 0 {
		t.Errorf("left in the temporary folder: %v", left)
	}
}

// death is one cell of the matrix: who dies, and when.
type death struct {
	victim, moment string
	at             string // the point
	passing        int
	uneven         bool // one device is slow, so that it hands work back
	orchestrator   bool // the point is in the orchestrator, and the victim is killed there
	stop           bool // the job is asked to stop first
	committed      bool // there is something to resume afterwards
	victimGone     bool // the victim has exited by then
	parts          bool // the point is passed only for a folder of parts
	encoded        bool // the point is passed only for a compressed output
	only           *variant
}

var deaths = []death{
	{victim: "orchestrator", moment: "start: journal without job.json", at: "journal-made"},
	{victim: "orchestrator", moment: "start", at: "event-planned"},
	{victim: "orchestrator", moment: "start: worker started", at: "event-worker_started", passing: 2},
	{victim: "orchestrator", moment: "mid-batch", at: "event-progress", passing: 3},
	{victim: "orchestrator", moment: "part written but not journalled", at: "part-written", passing: 4, committed: true},
	{victim: "orchestrator", moment: "journalled but not appended", at: "journalled", passing: 4, committed: true},
	{victim: "orchestrator", moment: "appended but not durable", at: "appended", passing: 4, committed: true},
	{victim: "orchestrator", moment: "a part of the output begun", at: "part-begun", passing: 2, committed: true, parts: true},
	{victim: "orchestrator", moment: "a unit appended but not in the journal", at: "unit-appended", passing: 3, committed: true, encoded: true},
	{victim: "orchestrator", moment: "a unit in the journal but not durable", at: "encoded", passing: 2, committed: true, encoded: true},
	{victim: "orchestrator", moment: "the end of a Parquet file appended", at: "tail-appended", passing: 2, committed: true, only: asTables},
	{victim: "orchestrator", moment: "at the final rename: array named", at: "array-renamed", committed: true, only: withArrays},
	{victim: "orchestrator", moment: "synced but not in the journal", at: "synced", passing: 2, committed: true},
	{victim: "orchestrator", moment: "durable but parts not removed", at: "durable", passing: 2, committed: true},
	{victim: "orchestrator", moment: "at the final rename: complete", at: "complete", committed: true},
	{victim: "orchestrator", moment: "at the final rename: failures named", at: "renamed", committed: true},
	{victim: "orchestrator", moment: "at the final rename: errors named", at: "renamed", passing: 2, committed: true},
	{victim: "orchestrator", moment: "at the final rename: folders exchanged", at: "exchanged", committed: true, parts: true},
	{victim: "orchestrator", moment: "at the final rename: output named", at: "renamed", passing: 3, committed: true},
	{victim: "orchestrator", moment: "at the final rename: journal not removed", at: "clearing", passing: 3, committed: true},
	{victim: "orchestrator", moment: "finished, but not gone", at: "event-finished", committed: true},
	{victim: "orchestrator", moment: "while stopping: reported", at: "event-stopping", stop: true},
	{victim: "orchestrator", moment: "while stopping", at: "stopping", stop: true, committed: true},

	{victim: "worker", moment: "start: while the kernel is asked", at: "worker-describe"},
	{victim: "worker", moment: "start", at: "worker-start"},
	{victim: "worker", moment: "mid-batch", at: "worker-mid-batch", passing: 4},
	{victim: "worker", moment: "rest handed back", at: "worker-handed-back", uneven: true},
	{victim: "worker", moment: "part written but not journalled", at: "worker-part-closed", passing: 2},
	{victim: "worker", moment: "journalled but not appended", at: "journalled", passing: 3, orchestrator: true},
	{victim: "worker", moment: "appended but not durable", at: "appended", passing: 3, orchestrator: true},
	{victim: "worker", moment: "at the final rename", at: "complete", orchestrator: true, victimGone: true},
	{victim: "worker", moment: "while stopping", at: "worker-stopping", stop: true},

	{victim: "kernel", moment: "start", at: "kernel-start"},
	{victim: "kernel", moment: "mid-batch", at: "kernel-mid-batch", passing: 4},
	{victim: "kernel", moment: "part written but not journalled", at: "part-written", passing: 3, orchestrator: true},
	{victim: "kernel", moment: "journalled but not appended", at: "journalled", passing: 3, orchestrator: true},
	{victim: "kernel", moment: "appended but not durable", at: "appended", passing: 3, orchestrator: true},
	{victim: "kernel", moment: "at the final rename", at: "complete", orchestrator: true, victimGone: true},
	{victim: "kernel", moment: "while stopping", at: "event-stopping", stop: true, orchestrator: true},
}

// TestInvariant3DeathMatrix: kill any process at any point and run the same job again:
// the output is that of an undisturbed run. Every death happens to one kind of job, and to
// another one that differs from run to run; make test-all runs all pairs, and
//
//	GPURUN_TEST_ALL=1 go test ./orchestrator -run 'TestInvariant3DeathMatrix/NAME'
//
// runs the ones that failed.
func TestInvariant3DeathMatrix(t *testing.T) {
	t.Parallel()
	for i, death := range deaths {
		list := death.variants(i)
		if os.Getenv("GPURUN_TEST_ALL") == "" && len(list) > 2 {
			list[1] = list[1+rand.IntN(len(list)-1)]
			list = list[:2]
		}
		for _, v := range list {
			t.Run(death.victim+" "+death.moment+" "+v.name, func(t *testing.T) {
				t.Parallel()
				death.test(t, i, v)
			})
		}
	}
}

// variants returns the kinds of jobs that a death concerns; it is the number-th.
func (x death) variants(number int) (list []*variant) {
	if x.only != nil {
		return []*variant{x.only}
	}
	try := func(v *variant) {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	if !x.parts && !x.encoded {
		try(variants[number%(len(variants)-1)])
	}
	if x.victim != "orchestrator" { // what is in flight is the worker's work
		try(grouped)
		// With one GPU, chunks are handed back only at the end, and not always twice.
		if x.at != "worker-handed-back" {
			try(adaptive)
		}
	}
	// The points of kernels are those of the test's own.
	if hasPython() && (x.victim == "kernel" && x.orchestrator || x.at == "worker-mid-batch") {
		try(withPrepareProcesses)
	}
	switch x.at {
	case "worker-mid-batch", "worker-part-closed": // the worker fetches files
		try(fetches)
	case "journalled", "durable": // the orchestrator reads files that must be decoded
		if x.victim == "orchestrator" {
			try(parquetInput)
		}
	}
	// What is on the disk is the orchestrator's work. A finished job would have to
	// be forced to start over.
	if x.victim == "orchestrator" && x.at != "event-finished" {
		if !x.encoded {
			try(inParts)
		}
		try(compressedParts)
	}
	if x.victim == "orchestrator" && !x.parts {
		try(compressed)
	}
	// One of these for each point that concerns what is on the disk, and all of them for
	// those of units.
	if x.encoded || x.committed && x.at != "event-finished" || x.at == "worker-part-closed" {
		for k, v := range []*variant{withArrays, asTable, asTables} {
			if !x.parts && (x.encoded || number%3 == k) || x.parts && v == asTables {
				try(v)
			}
		}
	}
	return list
}

func (x death) test(t *testing.T, number int, v *variant) {
	want := v.undisturbed(t)
	d, c := v.start(t)
	if x.stop {
		c.Resume.Checkpoint = 0 // or it would make workers stop
	}
	if x.uneven {
		c.Kernel.Config = []byte(`{"Milliseconds":6,"Slow":30}`)
	}
	mark := fmt.Sprintf("death-%d-%d-%d", number, v.records+len(v.name), os.Getpid())
	temp := shortTemp(t)
	fuse := d.join("fuse")
	touch(fuse)

	job := driverOf(t, c)
	job.DurableEvery = 100 * time.Millisecond
	env := []string{"TMPDIR=" + temp}
	if x.orchestrator {
		job.Victim, job.At, job.Passing = x.victim, x.at, int64(x.passing)
	} else {
		env = append(env, fmt.Sprintf("%s=%s:%d", crash.Variable, x.at, max(1, x.passing)), crash.OnceVariable+"="+fuse)
	}
	first := startDriver(t, job, mark, env...)
	if x.stop {
		first.await(t, "progress")
		_ = first.cmd.Process.Signal(syscall.SIGTERM)
	}
	end := first.wait(t)
	x.check(t, end, os.Remove(fuse) != nil)
	awaitGone(t, mark)

	if !end.done() {
		end = startDriver(t, driverOf(t, c), mark, "TMPDIR="+temp).wait(t)
		if !end.done() {
			t.Fatalf("the same job again: %s\n%s", end, d.logs())
		}
		// A job that only lacks the final rename finds everything done.
		if x.committed && end.resuming <= 0 && end.report.Resumed == 0 {
			t.Error("it did not resume")
		}
		awaitGone(t, mark)
	}
	checkReport(t, end.report, nil)
	checkFinished(t, d, c, want, temp)
}

// check: the death happened and hit the intended processes.
func (x death) check(t *testing.T, end outcome, burnt bool) {
	t.Helper()
	switch {
	case x.orchestrator && (end.victim < 0 || (end.victim == 0) != x.victimGone):
		t.Fatalf("killed %d: this test shows nothing", end.victim)
	case !x.orchestrator && !burnt:
		t.Fatalf("the point was never reached: this test shows nothing")
	case (x.victim == "orchestrator") != end.killed:
		t.Fatalf("the orchestrator ended so: %s", end)
	case end.err != nil && (!x.stop || end.err.Kind != "canceled"):
		t.Fatalf("the orchestrator ended so: %s", end)
	}
}
