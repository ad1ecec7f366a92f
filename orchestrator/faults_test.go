package orchestrator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestLostWorkerCostsNothing: a worker killed mid-chunk is replaced, and its chunk is
// computed again.
func TestLostWorkerCostsNothing(t *testing.T) {
	in := numbered(200)
	d := newJobDir(t, in)
	config := d.config("test-slow")
	config.Batching.Size, config.Kernel.Config = 5, []byte(`{"Milliseconds":10}`)
	pids := make(map[int]int)
	var once sync.Once
	lost := 0
	config.Display.OnEvent = func(e orchestrator.Event) {
		switch e := e.(type) {
		case orchestrator.WorkerStarted:
			pids[e.Slot] = e.PID
		case orchestrator.Progress:
			once.Do(func() { _ = syscall.Kill(pids[e.Slot], syscall.SIGKILL) })
		case orchestrator.WorkerLost:
			lost++
			if e.Retired || e.Fault.Kind != fault.Worker || !strings.Contains(e.Fault.Message, "SIGKILL") {
				t.Errorf("lost: %+v", e)
			}
		}
	}
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != in || report.Succeeded != 200 || lost != 1 {
		t.Errorf("lost %d workers, report %+v", lost, report)
	}
}

// TestLostRecordsAreNotDone: when a worker is lost, the records of its chunk no longer count, at
// once, and those of finished chunks still do.
func TestLostRecordsAreNotDone(t *testing.T) {
	d := newJobDir(t, numbered(200))
	config := d.config("test-slow")
	config.Devices.GPUs = "cpu:1"
	config.Batching.Size, config.Batching.ChunksPerGPU, config.Kernel.Config = 5, 4, []byte(`{"Milliseconds":10}`)
	var pid, lost int
	var finished, done int64
	var once sync.Once
	config.Display.OnEvent = func(e orchestrator.Event) {
		switch e := e.(type) {
		case orchestrator.WorkerStarted:
			pid = e.PID
		case orchestrator.ChunkDone:
			finished += e.Counts.Records
		case orchestrator.Progress:
			if done = e.Job.Records; finished > 0 && done > finished {
				once.Do(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			}
		case orchestrator.WorkerLost:
			if lost++; e.Job.Records != finished || done <= finished {
				t.Errorf("%d records are done after the loss and %d before it, of finished chunks %d", e.Job.Records, done, finished)
			}
		}
	}
	if report := mustRun(t, d, config); report.Succeeded != 200 || lost != 1 {
		t.Errorf("lost %d workers, report %+v", lost, report)
	}
}

// TestGivenUpChunkIsKept: a chunk that kills every worker is written with all its
// records marked; the others are unaffected.
func TestGivenUpChunkIsKept(t *testing.T) {
	in := numbered(10) + `{"id":10,"poison":"worker"}` + "\n" + `{"id":11,"_error":"old"}` + "\n" + numbered(8)
	d := newJobDir(t, in)
	config := d.config("test-poison")
	config.Batching.Size, config.Batching.ChunksPerGPU, config.Failures.Retries = 5, 2, 1
	given := 0
	config.Display.OnEvent = func(e orchestrator.Event) {
		if e, ok := e.(orchestrator.ChunkGivenUp); ok {
			given++
			if e.Counts.Records != 5 || e.Counts.Failed != e.Failed || e.Counts.Kinds["worker"].Count != 4 {
				t.Errorf("%+v", e)
			}
		}
	}
	report := mustRun(t, d, config)
	want := slices.Repeat([]string{""}, 10)
	want = append(want, "worker", "upstream", "worker", "worker", "worker")
	want = append(want, slices.Repeat([]string{""}, 5)...)
	got := marks(t, strings.Replace(d.read("out.jsonl"), `"_error":"old"`, `"_error":{"kind":"upstream"}`, 1))
	if !slices.Equal(want, got) || report.Failed != 5 || given != 1 {
		t.Errorf("given up %d, report %+v\n%v\n%s", given, report, got, d.read("out.jsonl"))
	}
}

// TestInvariant6LostDeviceCostsNoRecord: one of two devices is lost, and the other does
// all the work.
func TestInvariant6LostDeviceCostsNoRecord(t *testing.T) {
	in := numbered(100)
	d := newJobDir(t, in)
	config := d.config("test-open")
	config.Batching.Size, config.Kernel.Config = 5, []byte(`"first-only"`)
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != in || report.Succeeded != 100 {
		t.Errorf("report: %+v", report)
	}
}

// TestKernelThatDoesNotOpen: the message says why, soon, and no record is marked.
func TestKernelThatDoesNotOpen(t *testing.T) {
	for how, texts := range map[string][]string{
		"error": {"model.bin: no such file"},
		"exit":  {"exit status 3", "cannot open shop"},
		"hang":  {"[kernel-timeout open-timeout]"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(100))
			config := d.config("test-open")
			config.Kernel.Config = fmt.Appendf(nil, "%q", how)
			if how == "hang" {
				config.Failures.OpenTimeout = time.Second
			}
			report, err := run(t, config)
			wantFault(t, err, fault.Incompatible, texts...)
			if report.Pending != 100 {
				t.Errorf("report: %+v", report)
			}
		})
	}
}

// TestKernelKilledWhileItStarts: a kernel process that is killed before its first
// message is started once more; the job is not given up for that. A kernel that is
// killed every time is unusable.
func TestKernelKilledWhileItStarts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		starts string // at which it is killed: the first is the plan's
		fails  bool
	}{
		"while it is asked":        {"1", false},
		"on its device":            {"2", false},
		"both times it is asked":   {"1 2", true},
		"both times on its device": {"2 3", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(20))
			appendTo(d, "kernel", fmt.Sprintf(`#!/bin/sh
echo >> %[1]s/starts
for n in %[2]s; do
  [ "$(wc -l < %[1]s/starts)" -eq $n ] && kill -9 $$
done
exec %[3]s gpurun-kernel echo
`, d.path, test.starts, os.Args[0]))
			if err := os.Chmod(d.join("kernel"), 0o755); err != nil {
				t.Fatal(err)
			}
			c := d.config(d.join("kernel"))
			c.Devices.GPUs = "cpu:1"
			report, err := run(t, c)
			if test.fails {
				wantFault(t, err, fault.Incompatible, "SIGKILL")
				return
			}
			if err != nil || d.read("out.jsonl") != numbered(20) {
				t.Errorf("%v, report %+v\n%s", err, report, d.logs())
			}
		})
	}
}

// TestRemovedJobFolder: the job reports what is missing instead of hanging.
func TestRemovedJobFolder(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	config := d.config("test-slow")
	config.Batching.Size, config.Kernel.Config = 5, []byte(`{"Milliseconds":5}`)
	var once sync.Once
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, ok := e.(orchestrator.Progress); ok {
			once.Do(func() { _ = os.RemoveAll(d.join("out.jsonl.gpurun")) })
		}
	}
	_, err := run(t, config)
	wantFault(t, err, fault.Storage, "part")
}

// TestLargeMessages: results beyond gRPC's default of 4 MiB just work.
func TestLargeMessages(t *testing.T) {
	d := newJobDir(t, `{"poison":"huge"}`+"\n"+`{"a":"`+strings.Repeat("y", 10<<20)+`"}`+"\n")
	config := d.config("test-poison")
	mustRun(t, d, config)
	info, err := os.Stat(d.join("out.jsonl"))
	if err != nil || info.Size() < 30<<20 {
		t.Errorf("%v %v", info, err)
	}
}

func TestWorkersLogs(t *testing.T) {
	d := newJobDir(t, `{"poison":"exit"}`+"\n")
	mustRun(t, d, d.config("test-poison"))
	logs, _ := filepath.Glob(d.join("out.jsonl.gpurun/logs/worker-*.log"))
	if len(logs) != 1 || !strings.Contains(d.logs(), "my last words") {
		t.Errorf("logs: %v\n%s", logs, d.logs())
	}
}
