package orchestrator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shards"
	"github.com/gpurun/gpurun/orchestrator"
)

// runRange runs one range of a job that was surveyed.
func runRange(t *testing.T, d jobDir, c orchestrator.Config, s orchestrator.Survey, i, n int) (output, errors string) {
	t.Helper()
	size := (s.Records + int64(n) - 1) / int64(n)
	c.Input.Offset = s.First + int64(i)*size
	c.Input.Limit = min(size, s.First+s.Records-c.Input.Offset)
	if c.Input.Limit <= 0 {
		return "", ""
	}
	if i < len(s.Index.Places) {
		c.Input.Place = &s.Index.Places[i]
	}
	c.Input.Counts = s.Index.Files
	name := fmt.Sprintf("part-%d.jsonl", i)
	c.Output.Path, c.Output.Errors = d.join(name), d.join("errors-"+name)
	report := mustRun(t, d, c)
	if report.In != c.Input.Limit {
		t.Errorf("range %d has %d records instead of %d", i, report.In, c.Input.Limit)
	}
	return d.read(name), d.read("errors-" + name)
}

// TestRangesAreTheWhole: the outputs of ranges, which skip what precedes them, are together
// that of one job, marks with line numbers included.
func TestRangesAreTheWhole(t *testing.T) {
	for name, change := range map[string]func(d jobDir, c *orchestrator.Config){
		"plain": func(jobDir, *orchestrator.Config) {},
		"byte order mark, blank lines, no last newline": func(d jobDir, c *orchestrator.Config) {
			d.write("in.jsonl", "\ufeff\n \n"+strings.TrimSuffix(d.read("in.jsonl"), "\n"))
		},
		"by bytes":   func(_ jobDir, c *orchestrator.Config) { c.Input.Split = input.SplitBytes },
		"some of it": func(_ jobDir, c *orchestrator.Config) { c.Input.Offset, c.Input.Limit = 11, 133 },
		"compressed": derive("a compressed file").change,
		"several": func(d jobDir, c *orchestrator.Config) {
			severalFiles.change(d, c)
			c.Input.Offset, c.Input.Limit = 11, 133
		},
		"a byte order mark alone, a damaged file": func(d jobDir, c *orchestrator.Config) {
			severalFiles.change(d, c)
			d.write("data/2b.jsonl", "\ufeff")
			d.write("data/3.jsonl.gz", d.read("data/3.jsonl.gz")[:60])
			c.Input.SkipBad = true
		},
		"row groups": func(d jobDir, c *orchestrator.Config) {
			groups, err := os.ReadFile("../chunk/input/parquet/testdata/groups.parquet")
			if err != nil {
				d.t.Fatal(err)
			}
			d.write("a.parquet", string(groups))
			d.write("b.parquet", string(groups))
			c.Input.Path, c.Input.Paths = "three", []string{d.join("a.parquet"), d.join("in.jsonl"), d.join("b.parquet")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, mixed(160))
			c := d.config("test-work")
			c.Batching.Size, c.Batching.ChunksPerGPU = 8, 2
			change(d, &c)
			c.Output.Path, c.Output.Errors = d.join("out.jsonl"), d.join("errors.jsonl")
			mustRun(t, d, c)
			const n = 3
			c.Output.Force = true
			s, err := orchestrator.MakeSurvey(context.Background(), c, n)
			if err != nil {
				t.Fatal(err)
			}
			var output, errors string
			for i := range n {
				o, e := runRange(t, d, c, s, i, n)
				output, errors = output+o, errors+e
			}
			if output != d.read("out.jsonl") || errors != d.read("errors.jsonl") {
				t.Errorf("the ranges are different:\n%.2000s\nwant\n%.2000s", errors, d.read("errors.jsonl"))
			}
		})
	}
}

// TestSurveyRefusesStreams: what cannot be divided is refused before it is read.
func TestSurveyRefusesStreams(t *testing.T) {
	d := newJobDir(t, numbered(3))
	c := d.config("echo")
	c.Input.Path = "-"
	_, err := orchestrator.MakeSurvey(context.Background(), c, 2)
	wantFault(t, err, fault.Usage, "only once")
	c = d.config("echo")
	c.Resume.WorkDir = d.path
	_, err = orchestrator.MakeSurvey(context.Background(), c, 2)
	wantFault(t, err, fault.Usage, "work-dir")
}

// TestJoinLoadsTheJob: a machine that names only the output gets everything that shapes results
// from the survey, and keeps its own devices and limits. What it names must not contradict the
// survey.
func TestJoinLoadsTheJob(t *testing.T) {
	d := newJobDir(t, numbered(3))
	c := d.config("test-work")
	c.Kernel.Config, c.Kernel.NaN, c.Output.Keep, c.Input.Reprocess = []byte(`{"Milliseconds":6}`), orchestrator.NaNError, []string{"id"}, true
	s, err := orchestrator.MakeSurvey(context.Background(), c, 2)
	if err != nil {
		t.Fatal(err)
	}
	own := orchestrator.Config{
		Output: orchestrator.Output{Path: c.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:3"}, Resume: orchestrator.Resume{MaxTime: time.Hour},
		Program: c.Program,
	}
	join := func(config orchestrator.Config, given ...string) (orchestrator.Config, string) {
		t.Helper()
		joined, differs, err := orchestrator.Join(config, s.Print, func(setting string) bool { return slices.Contains(given, setting) })
		if err != nil {
			t.Fatal(err)
		}
		return joined, strings.Join(differs, "; ")
	}
	joined, differs := join(own)
	if differs != "" || joined.Kernel.Name != c.Kernel.Name || string(joined.Kernel.Config) != string(c.Kernel.Config) || joined.Kernel.NaN != c.Kernel.NaN ||
		!slices.Equal(joined.Output.Keep, c.Output.Keep) || !joined.Input.Reprocess || joined.Input.Path != c.Input.Path {
		t.Errorf("joined with %+v (%s)", joined, differs)
	}
	if joined.Devices.GPUs != "cpu:3" || joined.Resume.MaxTime != time.Hour {
		t.Errorf("the machine's own settings are %+v, %+v", joined.Devices, joined.Resume)
	}
	for want, change := range map[string]func(c *orchestrator.Config) (given string){
		"the members to keep was":                func(c *orchestrator.Config) string { c.Output.Keep = []string{"text"}; return "keep" },
		"the reprocess was true and is now":      func(*orchestrator.Config) string { return "reprocess" }, // --reprocess=false
		"the kernel was test-work":               func(c *orchestrator.Config) string { c.Kernel.Name = "echo"; return "kernel" },
		"the kernel's configuration was":         func(c *orchestrator.Config) string { c.Kernel.Config = []byte(`{}`); return "kernel-config" },
		"the value for NaN was error and is now": func(c *orchestrator.Config) string { c.Kernel.NaN = orchestrator.NaNNull; return "nan" },
	} {
		machine := own
		given := change(&machine)
		if _, differs := join(machine, given); !strings.Contains(differs, want) {
			t.Errorf("%q does not contain %q", differs, want)
		}
		machine.Resume.AcceptChanges = []string{"config"}
		if _, differs := join(machine, given); (differs == "") != strings.Contains(want, "configuration") {
			t.Errorf("accepted: %q", differs)
		}
	}
}

// TestJoinComparesColumns: the columns of a table are the job's. A machine that names others is refused,
// also if the job names none.
func TestJoinComparesColumns(t *testing.T) {
	d := newJobDir(t, numbered(3))
	c := d.config("echo")
	c.Output.Path = d.join("out.parquet")
	for _, test := range []struct{ job, machine []string }{{nil, []string{"id"}}, {[]string{"id"}, []string{"id", "text"}}, {[]string{"id"}, nil}, {nil, nil}} {
		c.Output.Columns = test.job
		s, err := orchestrator.MakeSurvey(t.Context(), c, 2)
		if err != nil {
			t.Fatal(err)
		}
		machine := c
		machine.Output.Columns = test.machine
		joined, differs, err := orchestrator.Join(machine, s.Print, func(string) bool { return false })
		switch {
		case err != nil:
			t.Fatal(err)
		case test.machine == nil:
			if len(differs) > 0 || !slices.Equal(joined.Output.Columns, test.job) {
				t.Errorf("the job has %v, a machine joins with %v: %v", test.job, joined.Output.Columns, differs)
			}
		case len(differs) != 1 || !strings.HasPrefix(differs[0], "the list of columns was "):
			t.Errorf("the job has %v, the machine %v: %v", test.job, test.machine, differs)
		}
	}
}

// TestAdopt: another job continues from what an interrupted one has committed, also if that
// is damaged, and leaves its files alone.
func TestAdopt(t *testing.T) {
	v := []*variant{derive(), derive("several files", "parts"), derive("compressed")}
	for i, damage := range []func(t *testing.T, folder string){
		func(*testing.T, string) {},
		func(t *testing.T, folder string) { // a finished segment
			paths, _ := filepath.Glob(filepath.Join(folder, "parts", "*.out"))
			for _, path := range paths {
				if err := os.WriteFile(path, []byte("{\n"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		},
		func(t *testing.T, folder string) { // the durable output
			path := filepath.Join(folder, "output.partial")
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.WriteAt([]byte("xxxx"), 30); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(fmt.Sprintf("%d %s", i, v[i].name), func(t *testing.T) {
			want := v[i].undisturbed(t)
			d, c := v[i].start(t)
			first := c
			first.Output.Path = filepath.Join(d.path, "first", filepath.Base(c.Output.Path))
			if strings.HasSuffix(c.Output.Path, "/") {
				first.Output.Path += "/"
			}
			if c.Output.Errors != "" {
				first.Output.Errors = d.join("first/errors.jsonl")
			}
			if err := os.Mkdir(d.join("first"), 0o777); err != nil {
				t.Fatal(err)
			}
			interrupted(t, orchestrator.WithDurableEvery(adapted(first), time.Millisecond), 8)
			folder := filepath.Clean(first.Output.Path) + ".gpurun"
			damage(t, folder)
			before := tree(folder)
			committed, _ := shards.Committed(first.Output.Path)
			if err := shards.Adopt(first.Output.Path, c); err != nil || committed == 0 {
				t.Fatalf("%d committed: %v", committed, err)
			}
			c.Kernel.Config = []byte(`{"Milliseconds":6}`)
			report := mustRun(t, d, adapted(c))
			if i == 0 && report.Resumed == 0 {
				t.Error("nothing was resumed")
			}
			if got := results(d, c); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the output is different:\n%.500s", fmt.Sprint(got))
			}
			if after := tree(folder); fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("the other job's folder had %v and has %v", before, after)
			}
		})
	}
}

// TestAdoptFinished: a job that was finished and not used is not computed again; its output
// is verified.
func TestAdoptFinished(t *testing.T) {
	d := newJobDir(t, mixed(80))
	c := d.config("test-work")
	c.Output.Errors = d.join("errors.jsonl")
	mustRun(t, d, c)
	next := c
	next.Output.Path, next.Output.Errors = d.join("next.jsonl"), d.join("next.err")
	if err := shards.Adopt(c.Output.Path, next); err != nil {
		t.Fatal(err)
	}
	if report := mustRun(t, d, next); report.Resumed != report.In {
		t.Errorf("%d of %d records were resumed", report.Resumed, report.In)
	}
	if d.read("next.jsonl") != d.read("out.jsonl") || d.read("next.err") != d.read("errors.jsonl") {
		t.Error("the output is different")
	}
	if err := os.WriteFile(c.Output.Path, []byte(strings.Replace(d.read("out.jsonl"), "x", "y", 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	next.Output.Path, next.Output.Errors = d.join("third.jsonl"), d.join("third.err")
	if err := shards.Adopt(c.Output.Path, next); err == nil {
		t.Error("a changed output was adopted")
	}
	if _, err := os.Stat(next.Output.Path); err == nil {
		t.Error("it was left behind")
	}
}

// TestPool: workers serve one job after another, and one that dies in between is replaced.
// The kernel describes itself once. Each job counts its own requests.
func TestPool(t *testing.T) {
	t.Run("batches", func(t *testing.T) {
		d := newJobDir(t, mixed(160))
		c := d.config("test-work")
		c.Batching.Size, c.Batching.ChunksPerGPU = 8, 4
		testPool(t, d, c, 0)
	})
	t.Run("records", func(t *testing.T) {
		d, c := callsJob(t, asks(160, func(int) string { return "" }), 8)
		testPool(t, d, c, 160)
		if got := len(strings.Fields(d.read("calls"))); got != 4*160 {
			t.Errorf("%d calls", got)
		}
		if left, _ := filepath.Glob(d.join("*.gpurun/parts/*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func testPool(t *testing.T, d jobDir, c orchestrator.Config, requests int64) {
	pool := &orchestrator.Pool{}
	defer pool.Close()
	var pids []int
	binary := d.join("worker")
	script := fmt.Sprintf("#!/bin/sh\necho started >> %q\nexec %q \"$@\"\n", d.join("starts"), os.Args[0])
	if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	job := func(name string) {
		t.Helper()
		c := c
		c.WorkerBinary = binary
		c.Devices.GPUs = "cpu:1"
		c.Output.Path, c.Pool = d.join(name), pool
		c.Display.OnEvent = func(e orchestrator.Event) {
			if e, ok := e.(orchestrator.WorkerStarted); ok {
				pids = append(pids, e.PID)
			}
		}
		if r := mustRun(t, d, c); r.Usage["requests"] != requests {
			t.Errorf("%v, want %d requests", r.Usage, requests)
		}
		if d.read(name) != d.read("a.jsonl") {
			t.Errorf("%s is different", name)
		}
	}
	job("a.jsonl")
	before := d.read("starts")
	job("b.jsonl")
	if d.read("starts") != before {
		t.Error("the second job started a process, to describe the kernel or to compute")
	}
	if len(pids) != 2 || pids[0] != pids[1] {
		t.Fatalf("workers %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	job("c.jsonl")
	if last := pids[len(pids)-1]; last == pids[0] {
		t.Errorf("workers %v", pids)
	}
	job("d.jsonl")
	pool.Close()
	if err := syscall.Kill(pids[len(pids)-1], 0); err == nil {
		t.Error("a worker is left")
	}
}
