package orchestrator_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// editInPlace replaces some text of a file with text of the same length and keeps the
// file's time.
func editInPlace(t *testing.T, path, old, new string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), old, new, 1)
	if changed == string(data) || len(changed) != len(data) {
		t.Fatalf("no %q, or not as long as %q, in %s", old, new, path)
	}
	if err := os.WriteFile(path, []byte(changed), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Now(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// TestRetryRefusesAnOutputOfTheSameSize: checksums detect an edited good record, in a
// file, in a part, and in an errors file.
func TestRetryRefusesAnOutputOfTheSameSize(t *testing.T) {
	t.Parallel()
	const input = "{\"id\":1}\n{\"id\":2,\"do\":\"fail\"}\n{\"id\":3,\"_error\":\"old\"}\n{\"id\":4}\n"
	for name, c := range map[string]struct {
		change       func(d jobDir, c *orchestrator.Config)
		edited       string
		from, to     string
		wantsRefusal bool
	}{
		"file":     {func(jobDir, *orchestrator.Config) {}, "out.jsonl", `"id":4`, `"id":5`, true},
		"upstream": {func(jobDir, *orchestrator.Config) {}, "out.jsonl", "old", "odd", true},
		"part": {func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.PartBytes, c.Batching.ChunksPerGPU = d.join("out")+"/", 1, 4
		},
			"out/part-00000.jsonl", `"id":1`, `"id":9`, true},
		"errors apart": {func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors.jsonl") },
			"errors.jsonl", "old", "odd", true},
		"nothing": {func(jobDir, *orchestrator.Config) {}, "in.jsonl", `"id":4`, `"id":5`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, input)
			config := d.config("test-mending")
			c.change(d, &config)
			mustRun(t, d, config)
			editInPlace(t, d.join(c.edited), c.from, c.to)
			before := d.read(c.edited)
			_, err := retryRepaired(t, config)
			if !c.wantsRefusal {
				if err != nil {
					t.Fatal(err)
				}
				// The retry recorded checksums of what it wrote, too.
				editInPlace(t, config.Output.Path, `"id":2`, `"id":8`)
				_, err := orchestrator.Retry(context.Background(), orchestrator.Config{Output: orchestrator.Output{Path: config.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}})
				wantFault(t, err, fault.Conflict, "checksum")
				return
			}
			wantFault(t, err, fault.Conflict, "was changed since the job wrote it")
			if d.read(c.edited) != before {
				t.Error("it was changed again")
			}
		})
	}
}

// TestRetryOfAResumedJobKnowsItsOutput: the checksum covers all runs together.
func TestRetryOfAResumedJobKnowsItsOutput(t *testing.T) {
	t.Parallel()
	d, c := derive().start(t)
	interrupt(t, c, "chunk_done", 3)
	resumes(t, d, c)
	again := orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}}
	if _, err := orchestrator.Retry(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	editInPlace(t, c.Output.Path, `"id":0`, `"id":1`)
	_, err := orchestrator.Retry(context.Background(), again)
	wantFault(t, err, fault.Conflict, "checksum")
}

// TestEditedOutputIsNotFinished: the same command does not report an output as finished
// that was modified since.
func TestEditedOutputIsNotFinished(t *testing.T) {
	t.Parallel()
	for _, parts := range []bool{false, true} {
		d := newJobDir(t, numbered(10))
		c, edited := d.config("echo"), d.join("out.jsonl")
		if parts {
			c.Output.Path, edited = d.join("out")+"/", d.join("out/part-00000.jsonl")
		}
		mustRun(t, d, c)
		if report := mustRun(t, d, c); report.Resumed != 10 {
			t.Errorf("an untouched output: %+v", report)
		}
		later := time.Now().Add(time.Second)
		if err := os.Chtimes(edited, later, later); err != nil {
			t.Fatal(err)
		}
		mustRun(t, d, c) // only its time changed
		editInPlace(t, edited, `"id":3`, `"id":4`)
		_, err := run(t, c)
		wantFault(t, err, fault.Usage, "already exists")
		status, err := orchestrator.Inspect(c.Output.Path, "")
		if err != nil {
			t.Fatal(err)
		}
		wantFault(t, orchestrator.Verify(context.Background(), c.Output.Path, status.Report), fault.Conflict, "checksum")
	}
}

// TestRetryWithAnotherKernelComputesAgain: results that an earlier retry computed but
// could not merge are valid only for its kernel and settings.
func TestRetryWithAnotherKernelComputesAgain(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (jobDir, orchestrator.Config) {
		d := newJobDir(t, "{\"id\":1}\n{\"id\":2,\"do\":\"fail\",\"then\":\"two\"}\n")
		c := d.config("test-mending")
		mustRun(t, d, c)
		obstacle := d.join("out.jsonl.gpurun/retry.next/output.partial/in the way")
		if err := os.MkdirAll(obstacle, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := retryRepaired(t, c); err == nil {
			t.Fatal("merged in spite of the obstacle")
		}
		if !exists(d.join("out.jsonl.gpurun/retry/out.jsonl")) {
			t.Fatal("the retry computed nothing")
		}
		if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
			t.Fatal(err)
		}
		return d, c
	}
	t.Run("another", func(t *testing.T) {
		t.Parallel()
		d, c := start(t)
		report, err := orchestrator.Retry(context.Background(), orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}, Kernel: orchestrator.Kernel{Name: "echo"}})
		if err != nil || report.Failed != 0 || strings.Contains(d.read("out.jsonl"), "again") {
			t.Errorf("%v, %d failed, output %q", err, report.Failed, d.read("out.jsonl"))
		}
	})
	t.Run("the same", func(t *testing.T) {
		t.Parallel()
		d, c := start(t)
		worked := false
		_, err := orchestrator.Retry(context.Background(), orchestrator.Config{
			Output: orchestrator.Output{Path: c.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}, Kernel: orchestrator.Kernel{Config: []byte(`{"Repaired":true}`)},
			Display: orchestrator.Display{OnEvent: func(e orchestrator.Event) {
				if _, ok := e.(orchestrator.WorkerStarted); ok {
					worked = true
				}
			}},
		})
		if err != nil || worked || !strings.Contains(d.read("out.jsonl"), "again") {
			t.Errorf("%v, computed again %t, output %q", err, worked, d.read("out.jsonl"))
		}
	})
}

// TestInterruptedRetryResumesOrStartsOver: the same retry resumes, one with another
// kernel starts over, and neither mixes results.
func TestInterruptedRetryResumesOrStartsOver(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"the same": false, "another kernel": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, strings.ReplaceAll(numbered(400), "}", "}\n{\"do\":\"fail\"}"))
			c := d.config("test-mending")
			mustRun(t, d, c)
			again := orchestrator.Config{
				Output: orchestrator.Output{Path: c.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:2"}, Kernel: orchestrator.Kernel{Name: "test-slow", Config: []byte(`{"Milliseconds":5}`)}, Batching: orchestrator.Batching{Size: 5, ChunksPerGPU: 8},
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			first := again
			watch(&first, func(name string, passing int, _ orchestrator.Event) {
				if name == "chunk_done" && passing == 3 {
					cancel()
				}
			})
			report, err := orchestrator.Retry(ctx, first)
			wantFault(t, err, fault.Canceled)
			if report.Resume != orchestrator.ResumesAtOnce {
				t.Errorf("the report says %q", report.Resume)
			}
			if other {
				again.Kernel.Name, again.Kernel.Config = "test-mending", []byte(`{"Repaired":true}`)
			}
			var resumed int64
			watch(&again, func(_ string, _ int, e orchestrator.Event) {
				if e, ok := e.(orchestrator.Resuming); ok {
					resumed = e.Done
				}
			})
			report, err = orchestrator.Retry(context.Background(), again)
			if err != nil || report.Failed != 0 || (resumed > 0) == other {
				t.Errorf("%v, %d failed, resumed from %d", err, report.Failed, resumed)
			}
			if d.read("out.jsonl") != d.read("in.jsonl") {
				t.Error("the output is not the input")
			}
		})
	}
}

// TestInspectDuringRetry: a job that is being retried is a finished one.
func TestInspectDuringRetry(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, "{\"do\":\"same\"}\n{\"do\":\"fail\",\"then\":\"same\"}\n")
	c := d.config("test-mending")
	if r, err := run(t, c); err != nil || r.Failed != 1 {
		t.Fatal(r, err)
	}
	again := d.config("")
	again.Kernel.Config = []byte(`{"Repaired":true}`)
	inspected := 0
	again.Display.OnEvent = func(orchestrator.Event) {
		inspected++
		status, err := orchestrator.Inspect(c.Output.Path, "")
		if err != nil || status.State != orchestrator.Done || status.Holder == "" || status.Report.In != 2 {
			t.Errorf("%+v, %v", status, err)
		}
	}
	if r, err := orchestrator.Retry(t.Context(), again); err != nil || r.Failed != 0 || inspected == 0 {
		t.Fatal(r, inspected, err)
	}
}
