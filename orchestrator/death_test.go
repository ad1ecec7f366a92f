package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if diff := differences(want, results(d, c)); diff != "" {
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
		case "in.jsonl", "kernel.py", "helper.py", "program.py", "out", "out.gpurun", "job.json", "report.json", "lock",
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
	uneven         bool                    // one device is slow, so that it hands work back
	orchestrator   bool                    // the point is in the orchestrator, and the victim is killed there
	stop           bool                    // the job is asked to stop first
	committed      bool                    // there is something to resume afterwards
	victimGone     bool                    // the victim has exited by then
	only           func(store *trait) bool // outputs for which the point is passed, all if nil
}

func isParts(store *trait) bool { return store.parts }

func isEncoded(store *trait) bool { return store.encoded }

var deaths = []death{
	{victim: "orchestrator", moment: "start: journal without job.json", at: "journal-made"},
	{victim: "orchestrator", moment: "start", at: "event-planned"},
	{victim: "orchestrator", moment: "start: worker started", at: "event-worker_started", passing: 2},
	{victim: "orchestrator", moment: "mid-batch", at: "event-progress", passing: 3},
	{victim: "orchestrator", moment: "part written but not journalled", at: "part-written", passing: 4, committed: true},
	{victim: "orchestrator", moment: "journalled but not appended", at: "journalled", passing: 4, committed: true},
	{victim: "orchestrator", moment: "appended but not durable", at: "appended", passing: 4, committed: true},
	{victim: "orchestrator", moment: "a part of the output begun", at: "part-begun", passing: 2, committed: true, only: isParts},
	{victim: "orchestrator", moment: "a unit appended but not in the journal", at: "unit-appended", passing: 3, committed: true, only: isEncoded},
	{victim: "orchestrator", moment: "a unit in the journal but not durable", at: "encoded", passing: 2, committed: true, only: isEncoded},
	{victim: "orchestrator", moment: "the end of a Parquet file appended", at: "tail-appended", passing: 2, committed: true, only: func(store *trait) bool { return store.name == "tables" }},
	{victim: "orchestrator", moment: "at the final rename: array named", at: "array-renamed", committed: true, only: func(store *trait) bool { return store.arrays }},
	{victim: "orchestrator", moment: "synced but not in the journal", at: "synced", passing: 2, committed: true},
	{victim: "orchestrator", moment: "durable but parts not removed", at: "durable", passing: 2, committed: true},
	{victim: "orchestrator", moment: "at the final rename: complete", at: "complete", committed: true},
	{victim: "orchestrator", moment: "at the final rename: failures named", at: "renamed", committed: true},
	{victim: "orchestrator", moment: "at the final rename: errors named", at: "renamed", passing: 2, committed: true},
	{victim: "orchestrator", moment: "at the final rename: folders exchanged", at: "exchanged", committed: true, only: isParts},
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
// the output equals an undisturbed run's. Every death happens to a job that differs from run to
// run; make test-all runs one with each store, and
//
//	GPURUN_TEST_JOB='a file, arrays, grouped' go test ./orchestrator -run TestInvariant3DeathMatrix/NAME
//
// the one that failed.
func TestInvariant3DeathMatrix(t *testing.T) {
	t.Parallel()
	number := rand.IntN(len(sources) * len(ways)) // the same for all deaths, so that they share undisturbed runs
	for i, death := range deaths {
		list := rotation(number, death.hits)
		if names := os.Getenv("GPURUN_TEST_JOB"); names != "" {
			list = slices.DeleteFunc([]*variant{derive(strings.Split(names, ", ")...)}, func(v *variant) bool { return !v.exists() || !death.hits(v) })
		} else if os.Getenv("GPURUN_TEST_ALL") == "" {
			list = list[i%len(list):][:1]
		}
		for _, v := range list {
			t.Run(death.victim+" "+death.moment+"/"+v.name, func(t *testing.T) {
				t.Parallel()
				death.test(t, i, v)
			})
		}
	}
}

// hits reports whether a death can happen to a job.
func (x death) hits(v *variant) bool {
	switch {
	case x.only != nil && !x.only(v.store):
		return false
	case v.way.foreign && (strings.HasPrefix(x.at, "kernel-") || x.uneven), v.store.columns && x.uneven: // the kernel cannot
		return false
	case v.way.name == "grouped" && v.source.short && x.uneven: // a worker has taken all of a chunk at once
		return false
	case v.way.name == "grouped" && v.source.fetched && v.store.columns && x.orchestrator && x.at == "appended": // it is appended when no worker is left
		return false
	case v.way.name == adaptiveGPU && (x.uneven || x.at == "event-worker_started"): // it begins with one worker
		return false
	}
	return x.at != "event-finished" || !v.store.parts // a finished job over an older one would start over
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
	mark := fmt.Sprintf("death-%d-%d-%d", number, slices.Index(stores, v.store), os.Getpid())
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
		// A job that only lacks the final rename finds everything done. One that is stopped in its
		// first window of grouped records has written nothing.
		if x.committed && !(x.stop && v.way.name == "grouped") && end.resuming <= 0 && end.report.Resumed == 0 {
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
