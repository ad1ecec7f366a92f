package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestRecordThatSpeaksOfALostDevice: a message that quotes a record costs that record,
// and neither a device nor the job, wherever the record is.
func TestRecordThatSpeaksOfALostDevice(t *testing.T) {
	t.Parallel()
	many := make([]int, 40)
	for i := range many {
		many[i] = i
	}
	for name, test := range map[string]struct {
		gpus, size int
		at         []int
	}{
		"in the middle":                      {2, 16, []int{50, 51, 130}},
		"in the middle, batches of one":      {2, 1, []int{50, 51, 130}},
		"at the beginning":                   {2, 16, []int{0}},
		"at the beginning, of one GPU":       {1, 16, []int{0}},
		"at the beginning, batches of one":   {1, 1, []int{0}},
		"the first chunks, of one GPU":       {1, 4, many},
		"the first chunks, of several":       {2, 4, many},
		"at the end, batches of one, of one": {1, 1, []int{199}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := slices.Collect(strings.Lines(numbered(200)))
			for _, at := range test.at {
				lines[at] = `{"poison":"speaks"}` + "\n"
			}
			d := newJobDir(t, strings.Join(lines, ""))
			c := onMachine(d, gputest.New(test.gpus), "test-poison")
			c.Batching.Size = test.size
			report, err := run(t, c)
			if len(test.at) > 20 && fault.KindOf(err) == fault.Incompatible {
				return // that many at the start may well be the kernel's fault
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, d.logs())
			}
			var marked []int
			for i, kind := range marks(t, d.read("out.jsonl")) {
				if kind == "batch" {
					marked = append(marked, i)
				}
			}
			if !slices.Equal(marked, test.at) || report.Failed != int64(len(test.at)) {
				t.Errorf("marked %v, report %+v", marked, report)
			}
			for _, w := range report.Workers {
				if w.Retired {
					t.Errorf("worker: %+v", w)
				}
			}
		})
	}
}

// TestResumeAtARecordThatSpeaksOfALostDevice: a job that stopped before such a record
// resumes and gets past it.
func TestResumeAtARecordThatSpeaksOfALostDevice(t *testing.T) {
	t.Parallel()
	lines := slices.Collect(strings.Lines(numbered(200)))
	for i := 20; i < 200; i++ {
		lines[i] = `{"poison":"speaks"}` + "\n"
	}
	d := newJobDir(t, strings.Join(lines, ""))
	c := onMachine(d, gputest.New(1), "test-poison")
	c.Batching.ChunksPerGPU = 10 // of twenty records each
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
	if report.Succeeded != 20 {
		t.Fatalf("report: %+v", report)
	}
	if report = mustRun(t, d, c); report.Succeeded != 20 || report.Failed != 180 {
		t.Errorf("report: %+v", report)
	}
}

// TestDeviceLostInWords: a device that a kernel reports as lost only in words, and on
// which good records fail too, is retired, and costs no record while another is left.
func TestDeviceLostInWords(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"in the middle": 100, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := slices.Collect(strings.Lines(numbered(400)))
			for i := at; i < 400; i += 20 {
				lines[i] = fmt.Sprintf("{\"lose\":%d}\n", i)
			}
			in := strings.Join(lines, "")
			d := newJobDir(t, in)
			c := onMachine(d, gputest.New(2), "test-gone")
			c.Kernel.Config = fmt.Appendf(nil, "{\"Lost\":%q}", d.join("lost"))
			var losses []orchestrator.WorkerLost
			c.Display.OnEvent = func(e orchestrator.Event) {
				if e, ok := e.(orchestrator.WorkerLost); ok {
					losses = append(losses, e)
				}
			}
			report := mustRun(t, d, c)
			if d.read("out.jsonl") != in || report.Succeeded != 400 || len(losses) == 0 {
				t.Errorf("lost %+v, report %+v", losses, report)
			}
		})
	}
}
