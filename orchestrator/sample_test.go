package orchestrator_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// deaths counts how often kernels died of {"poison":"exit"}.
func (d jobDir) deaths() int { return strings.Count(d.logs(), "my last words") }

// TestKernelThatAlwaysDies: a kernel that dies on every record is reported after a few
// starts, and no record is marked, however many or few there are.
func TestKernelThatAlwaysDies(t *testing.T) {
	t.Parallel()
	for records, devices := range map[int]string{300: "cpu:1", 4000: "cpu:2"} {
		t.Run(fmt.Sprint(records), func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, strings.Repeat(`{"poison":"exit"}`+"\n", records))
			c := d.config("test-poison")
			c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = devices, 1024, 1
			report, err := run(t, c)
			wantFault(t, err, fault.Incompatible, "fails on everything", "tried alone", "exit status 7", "my last words")
			if report.Failed > 0 || report.Pending != int64(records) || exists(c.Output.Path) {
				t.Errorf("report: %+v", report)
			}
			// Each worker: the batch twice and eight records, plus what it was
			// computing when it was killed or until the other had started. Trying all
			// takes two deaths per record.
			if n := d.deaths(); n < 10 || n > records/4 {
				t.Errorf("%d deaths", n)
			}
		})
	}
}

// TestKernelThatMostlyDies: one good record, wherever it is, proves that the kernel
// works.
func TestKernelThatMostlyDies(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]int{"among the samples": 63, "elsewhere, in a batch too small to sample": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := slices.Repeat([]string{`{"poison":"exit"}` + "\n"}, min(64, 4*good+3))
			lines[good] = "{}\n"
			d := newJobDir(t, strings.Join(lines, ""))
			c := d.config("test-poison")
			c.Devices.GPUs, c.Batching.Size = "cpu:1", 64
			report := mustRun(t, d, c)
			if kinds := marks(t, d.read("out.jsonl")); report.Succeeded != 1 || kinds[good] != "" || report.Failed != int64(len(lines)-1) {
				t.Errorf("report: %+v", report)
			}
		})
	}
}

// TestResumeWithADeadKernel: a kernel that worked in an earlier run and now dies on
// every record is distinguished from records that kill it.
func TestResumeWithADeadKernel(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"the kernel": true, "the records": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := slices.Repeat([]string{"{}\n"}, 1000)
			if !broken { // everything that the next run starts with
				for i := 64; i < 160; i++ {
					lines[i] = `{"poison":"exit"}` + "\n"
				}
			}
			d := newJobDir(t, strings.Join(lines, ""))
			c := d.config("test-breakable")
			c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = "cpu:1", 32, 16
			c.Kernel.Config = fmt.Appendf(nil, `{"Broken":%q}`, d.join("broken"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := c
			first.Display.OnEvent = func(e orchestrator.Event) {
				if _, ok := e.(orchestrator.ChunkDone); ok {
					cancel()
				}
			}
			report, err := runContext(t, ctx, first)
			wantFault(t, err, fault.Canceled)
			if report.Succeeded < 64 || report.Pending < 500 {
				t.Fatalf("report: %+v", report)
			}
			if broken {
				if err := os.WriteFile(d.join("broken"), nil, 0o666); err != nil {
					t.Fatal(err)
				}
				report, err = run(t, c)
				wantFault(t, err, fault.Incompatible, "fails on everything", "and one that succeeded in an earlier run", "exit status 7")
				if report.Failed > 0 {
					t.Errorf("report: %+v", report)
				}
				if err := os.Remove(d.join("broken")); err != nil {
					t.Fatal(err)
				}
			}
			report = mustRun(t, d, c)
			if bad := strings.Count(strings.Join(lines, ""), "poison"); report.Failed != int64(bad) {
				t.Errorf("%d records failed, want %d", report.Failed, bad)
			}
		})
	}
}

// TestSampleThatCannotReopen: a kernel that cannot be reopened during sampling computes
// nothing, and no record is blamed.
func TestSampleThatCannotReopen(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(200))
	c := d.config("test-reopen")
	c.Devices.GPUs, c.Batching.Size = "cpu:1", 100
	c.Kernel.Config = fmt.Appendf(nil, `{"Opened":%q}`, d.join("opened"))
	report, err := run(t, c)
	wantFault(t, err, fault.NoDevice, "the memory is not free yet")
	if report.Failed > 0 {
		t.Errorf("report: %+v", report)
	}
}

// TestShareWhileSearching: while a worker isolates many bad records, others compute
// what it has not started.
func TestShareWhileSearching(t *testing.T) {
	t.Parallel()
	const batch, chunk = 64, 2048
	for poison, bad := range map[string]int{"exit": batch - 1, "hang": 1} {
		t.Run(poison, func(t *testing.T) {
			t.Parallel()
			lines := slices.Collect(strings.Lines(numbered(2 * chunk)))
			for i := range bad {
				lines[i+1] = fmt.Sprintf("{\"poison\":%q}\n", poison)
			}
			d := newJobDir(t, strings.Join(lines, ""))
			c := d.config("test-poison")
			c.Batching.Size, c.Batching.ChunksPerGPU, c.Failures.Timeout, c.Failures.OpenTimeout = batch, 1, time.Second, 8*time.Second
			report := mustRun(t, d, c)
			if report.Failed != int64(bad) || report.Succeeded != int64(2*chunk-bad) {
				t.Errorf("report: %+v", report)
			}
			least := min(report.Workers[0].Records, report.Workers[1].Records)
			if least > 8*batch { // what it had in flight, and its share of what it gave back
				t.Errorf("the one that searched did %d records itself", least)
			}
		})
	}
}

// TestStopWhileSearching: a stop does not wait until every bad record is isolated,
// which takes two deaths each; the next run computes what was not finished.
func TestStopWhileSearching(t *testing.T) {
	t.Parallel()
	const records = 120
	lines := slices.Repeat([]string{`{"poison":"exit"}` + "\n"}, records)
	lines[0] = "{}\n" // so that it is not one that always dies
	d := newJobDir(t, strings.Join(lines, ""))
	c := d.config("test-poison")
	c.Devices.GPUs, c.Batching.Size = "cpu:1", records
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Display.OnEvent = func(e orchestrator.Event) {
		if n, ok := e.(orchestrator.Notice); ok && strings.Contains(n.Text, "bisecting it") {
			cancel()
		}
	}
	report, err := runContext(t, ctx, c)
	wantFault(t, err, fault.Canceled)
	if report.Pending != records {
		t.Errorf("report: %+v", report)
	}
	if n := d.deaths(); n == 0 || n > records {
		t.Errorf("%d deaths before it stopped", n)
	}
	c.Display.OnEvent = nil
	if report := mustRun(t, d, c); report.Succeeded != 1 || report.Failed != records-1 {
		t.Errorf("resumed: %+v", report)
	}
}
