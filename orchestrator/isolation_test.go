package orchestrator_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestPoisonRecord: one record that kills the kernel, in a batch of 1,024, is isolated
// with few restarts and costs no device.
func TestPoisonRecord(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 700, 1023} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			lines := slices.Collect(strings.Lines(numbered(3 * 1024)))
			lines[1024+at] = `{"poison":"kill"}` + "\n"
			d := newJobDir(t, strings.Join(lines, ""))
			c := d.config("test-poison")
			c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = "cpu:1", 1024, 1
			report := mustRun(t, d, c)
			w := report.Workers[0]
			most := int64(2*math.Log2(1024) + 2)
			t.Logf("%d restarts, at most %d", w.Restarts, most)
			if w.Restarts > most || w.Lost > 0 || w.Retired {
				t.Errorf("worker: %+v", w)
			}
			kinds := marks(t, d.read("out.jsonl"))
			if report.Failed != 1 || kinds[1024+at] != "crash" {
				t.Errorf("failed %d, the record is marked %q", report.Failed, kinds[1024+at])
			}
		})
	}
}

// TestHangingRecord: one record that hangs, in a batch of 1,024, without --timeout, is
// isolated in six waits, by a limit derived from the good batches, and affects no other
// record.
func TestHangingRecord(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 1023} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			const batches = 12 // this many are good before it
			lines := slices.Collect(strings.Lines(numbered((batches + 2) * 1024)))
			lines[batches*1024+at] = `{"poison":"hang"}` + "\n"
			d := newJobDir(t, strings.Join(lines, ""))
			c := orchestrator.WithLeastTimeout(d.config("test-poison"), 4*time.Second)
			c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = "cpu:1", 1024, 1
			started := time.Now()
			report := mustRun(t, d, c)
			t.Logf("%s, %d restarts", time.Since(started).Round(time.Millisecond), report.Workers[0].Restarts)
			kinds := marks(t, d.read("out.jsonl"))
			if report.Failed != 1 || kinds[batches*1024+at] != "timeout" {
				t.Errorf("failed %d, the record is marked %q\n%s", report.Failed, kinds[batches*1024+at], d.logs())
			}
			// A piece that is slow on a busy machine costs one more restart.
			if w := report.Workers[0]; w.Restarts > 20 || w.Lost > 0 {
				t.Errorf("worker: %+v", w)
			}
		})
	}
}

// TestTimeoutAppliesToTheFirstBatch: --timeout applies to the first batch too, however
// long opening may take, and the message says how to raise it.
func TestTimeoutAppliesToTheFirstBatch(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, `{"poison":"hang"}`+"\n"+numbered(1))
	c := d.config("test-poison")
	c.Devices.GPUs, c.Batching.Size, c.Failures.Timeout = "cpu:1", 1, time.Second
	mustRun(t, d, c)
	out := d.read("out.jsonl")
	if marks(t, out)[0] != "timeout" || !strings.Contains(out, "did not respond within 1s") {
		t.Error(out)
	}
}

// TestTenPoisonRecords: of 25,000 records exactly the ten bad ones are marked.
func TestTenPoisonRecords(t *testing.T) {
	t.Parallel()
	lines := slices.Collect(strings.Lines(numbered(25_000)))
	bad := []int{0, 1, 511, 512, 7_750, 7_875, 12_500, 19_444, 24_998, 24_999}
	for i, at := range bad {
		lines[at] = fmt.Sprintf("{\"id\":%d,\"poison\":%q}\n", at, []string{"kill", "panic", "exit"}[i%3])
	}
	d := newJobDir(t, strings.Join(lines, ""))
	c := d.config("test-poison")
	c.Batching.Size = 256
	report := mustRun(t, d, c)
	var marked []int
	for i, kind := range marks(t, d.read("out.jsonl")) {
		if kind != "" {
			marked = append(marked, i)
		}
	}
	if !slices.Equal(marked, bad) || report.Failed != 10 {
		t.Errorf("marked %v, report %d failed", marked, report.Failed)
	}
	var restarts int64
	for _, w := range report.Workers {
		restarts += w.Restarts
		if w.Retired || w.Lost > 0 {
			t.Errorf("worker: %+v", w)
		}
	}
	t.Logf("%d restarts for 10 records", restarts)
}

// TestKernelThatDoesNotReopen: if a record kills a kernel that then cannot be reopened,
// the records it should have computed are not to blame.
func TestKernelThatDoesNotReopen(t *testing.T) {
	t.Parallel()
	lines := slices.Collect(strings.Lines(numbered(400)))
	lines[100] = `{"id":"die"}` + "\n"
	d := newJobDir(t, strings.Join(lines, ""))
	c := d.config("test-work")
	c.Batching.Size, c.Devices.GPUs = 16, "cpu:1"
	c.Kernel.Config = fmt.Appendf(nil, `{"Milliseconds":5,"FailOpen":%q}`, d.join("gone"))
	report, err := run(t, c)
	wantFault(t, err, fault.NoDevice, "the model is gone")
	if report.Failed > 0 || exists(c.Output.Path) {
		t.Errorf("report: %+v", report)
	}
	// The kernel is repaired; only the one record suffers.
	if err := os.Remove(d.join("gone")); err != nil {
		t.Fatal(err)
	}
	mended := make(chan struct{})
	go func() { // as long as it keeps breaking
		for {
			select {
			case <-mended:
				return
			case <-time.After(time.Millisecond):
				_ = os.Remove(d.join("gone"))
			}
		}
	}()
	report = mustRun(t, d, c)
	close(mended)
	if report.Failed != 1 {
		t.Errorf("report: %+v", report)
	}
}

// TestKernelFailsOnEverything: the job stops with the kernel's message instead of
// marking all records, and nothing is committed.
func TestKernelFailsOnEverything(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"error", "exit", "fail"} {
		for _, workers := range []string{"cpu:1", "cpu:2"} {
			t.Run(how+" "+workers, func(t *testing.T) {
				t.Parallel()
				d := newJobDir(t, strings.Repeat(fmt.Sprintf("{\"poison\":%q}\n", how), 400))
				c := d.config("test-poison")
				c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU, c.Resume.Checkpoint = workers, 4, 8, 20*time.Millisecond
				report, err := run(t, c)
				text := map[string]string{"error": "cannot compute this batch", "exit": "exit status 7", "fail": "rejected"}[how]
				wantFault(t, err, fault.Incompatible, text)
				if exists(c.Output.Path) || journalled(t, c) > 0 || report.Failed > 0 || report.Pending != 400 {
					t.Errorf("%d segments committed, report %+v", journalled(t, c), report)
				}
			})
		}
	}
}

// TestBatchesIncludeThoseInFlightAfterAFailedOne: the report counts every batch once.
func TestBatchesIncludeThoseInFlightAfterAFailedOne(t *testing.T) {
	t.Parallel()
	var input strings.Builder
	for i := range 400 {
		if i%10 == 5 {
			input.WriteString("{\"poison\":\"error\"}\n")
		} else {
			fmt.Fprintf(&input, "{\"id\":%d}\n", i)
		}
	}
	d := newJobDir(t, input.String())
	c := d.config("test-poison")
	c.Devices.GPUs, c.Batching.Size, c.Batching.ChunksPerGPU = "cpu:1", 4, 1
	report, err := run(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Workers[0].Batches; n != 100 || report.Latency.Batches != n || report.Failed != 40 {
		t.Errorf("%d batches, %d latencies, %d failed; want 100, 100, 40", n, report.Latency.Batches, report.Failed)
	}
}

// TestJobThatFailsEntirelyLeavesNoOutput: a job of two or more records that all failed
// with the same kernel message fails with that message, whatever its size, and does not
// block a run with a working kernel. Records that fail by themselves are results.
func TestJobThatFailsEntirelyLeavesNoOutput(t *testing.T) {
	t.Parallel()
	bad := func(how ...string) string {
		var b strings.Builder
		for _, how := range how {
			fmt.Fprintf(&b, "{\"poison\":%q}\n", how)
		}
		return b.String()
	}
	for name, test := range map[string]struct {
		input  string
		stream bool
		fails  string // the message, if the job fails
	}{
		"two raise":             {bad("error", "error"), false, "all 2 records failed with: cannot compute this batch"},
		"ten raise":             {bad(slices.Repeat([]string{"error"}, 10)...), false, "all 10 records failed with: cannot compute this batch"},
		"ten raise in a stream": {bad(slices.Repeat([]string{"error"}, 10)...), true, "all 10 records failed with: cannot compute this batch"},
		"five die":              {bad(slices.Repeat([]string{"exit"}, 5)...), false, "exit status 7"},
		"one raises":            {bad("error"), false, ""},
		"five are rejected":     {bad(slices.Repeat([]string{"fail"}, 5)...), false, ""},
		"one is good":           {bad("error", "error") + "{}\n", false, ""},
		"one is no JSON":        {bad("error", "error") + "{\n", false, ""},
		"one is marked":         {bad("error", "error") + "{\"_error\":1}\n", false, ""},
		"one dies":              {bad("error", "error", "exit"), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, test.input)
			c := d.config("test-poison")
			if c.Batching.Size = 4; test.stream {
				c.Input.Path, c.Input.Stdin = "-", strings.NewReader(test.input)
			}
			report, err := run(t, c)
			if test.fails == "" {
				if err != nil || report.Failed == 0 {
					t.Errorf("%v, report %+v", err, report)
				}
				return
			}
			wantFault(t, err, fault.Incompatible, "the kernel fails on everything", test.fails)
			if exists(c.Output.Path) || report.Failed > 0 {
				t.Errorf("report: %+v", report)
			}
			c.Kernel.Name, c.Input.Stdin = "echo", strings.NewReader(test.input)
			mustRun(t, d, c)
		})
	}
}

// TestDifferingMessagesStopTheJobToo: a kernel that fails on everything with a
// different message each time is detected after some records, and nothing is committed.
func TestDifferingMessagesStopTheJobToo(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "{\"poison\":\"words\",\"word\":%q}\n", strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e",
			"5", "f", "6", "g", "7", "h", "8", "i", "9", "j").Replace(fmt.Sprint(i)))
	}
	d := newJobDir(t, b.String())
	c := d.config("test-poison")
	c.Batching.Size, c.Batching.ChunksPerGPU = 64, 1
	report, err := run(t, c)
	wantFault(t, err, fault.Incompatible, "the kernel fails on everything", "records failed, one of them with: cannot compute")
	if exists(c.Output.Path) || report.Failed > 0 || report.Pending != 4000 || journalled(t, c) > 0 {
		t.Errorf("report: %+v", report)
	}
}

// TestBadBeginning: bad records at the start of every chunk but one do not stop a job
// whose other records are good.
func TestBadBeginning(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, strings.Repeat(`{"poison":"fail"}`+"\n", 50)+numbered(350))
	c := d.config("test-poison")
	c.Batching.Size, c.Batching.ChunksPerGPU, c.Resume.Checkpoint = 5, 2, 20*time.Millisecond
	if report := mustRun(t, d, c); report.Failed != 50 || report.Succeeded != 350 {
		t.Errorf("report: %+v", report)
	}
}

// TestGiveUpMark: with no device left, the remaining records are marked if the user
// wants it; otherwise the job stops, and finished work is kept.
func TestGiveUpMark(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mark", "stop", "stop while marking"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := slices.Collect(strings.Lines(numbered(2000)))
			lines[40], lines[160] = `{"poison":"device"}`+"\n", `{"poison":"device"}`+"\n"
			d := newJobDir(t, strings.Join(lines, ""))
			c := orchestrator.WithFirstProbe(d.config("test-poison"), 10*time.Millisecond)
			c.Batching.Size, c.Batching.ChunksPerGPU = 5, 40
			c.Failures.GiveUpMark = name != "stop"
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			watched := c
			watch(&watched, func(event string, passing int, _ orchestrator.Event) {
				if event == "chunk_given_up" && passing == 1 && name == "stop while marking" {
					cancel()
				}
			})
			report, err := runContext(t, ctx, watched)
			switch name {
			case "mark":
				if err != nil {
					t.Fatal(err)
				}
			case "stop":
				wantFault(t, err, fault.NoDevice, "fallen off the bus")
				if exists(c.Output.Path) || report.Pending == 0 {
					t.Errorf("report: %+v", report)
				}
				return
			case "stop while marking":
				wantFault(t, err, fault.Canceled)
				if exists(c.Output.Path) || report.Pending == 0 {
					t.Fatalf("half an output got its name: %+v", report)
				}
				report = mustRun(t, d, c)
			}
			kinds := marks(t, d.read("out.jsonl"))
			if len(kinds) != 2000 || report.Pending != 0 || report.Failed == 0 || kinds[40] != "device" {
				t.Errorf("%d lines, report %+v", len(kinds), report)
			}
		})
	}
}

// asked is one request to the kernel test-memory.
type asked struct {
	device, records int
	fits            bool
	first           string
}

func memoryLog(t *testing.T, d jobDir) (list []asked) {
	t.Helper()
	for line := range strings.Lines(d.read("memory.log")) {
		var a asked
		if _, err := fmt.Sscanf(line, "%d %d %t %s", &a.device, &a.records, &a.fits, &a.first); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// TestOutOfMemory: batches shrink, once and for good.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	const room = 10
	d := newJobDir(t, numbered(2000))
	c := d.config("test-memory")
	c.Batching.Size = 128
	c.Kernel.Config = fmt.Appendf(nil, `{"Room":%d,"Log":%q}`, room, d.join("memory.log"))
	report := mustRun(t, d, c)
	if report.Failed > 0 || d.read("out.jsonl") != numbered(2000) {
		t.Errorf("report: %+v", report)
	}
	refused, tried := make(map[int]int), make(map[int]int)
	for _, a := range memoryLog(t, d) {
		tried[a.device]++
		if a.records <= room {
			continue
		}
		refused[a.device]++
		// What was prefetched, including the next chunk, still has the old size; later
		// the worker rarely tries one more record.
		if tried[a.device] > 100 && a.records > room+1 {
			t.Errorf("batch %d of device %d has %d records", tried[a.device], a.device, a.records)
		}
	}
	t.Logf("batches that did not fit: %v", refused)
	for device, n := range refused {
		if n > 40 {
			t.Errorf("device %d ran out of memory %d times", device, n)
		}
	}
}

// TestRecordTooLarge: a record that does not fit even alone is tried on the other
// device and only then marked, once. Its neighbors are unaffected, and so is a record
// that fits only one device.
func TestRecordTooLarge(t *testing.T) {
	t.Parallel()
	lines := slices.Collect(strings.Lines(numbered(400)))
	set := func(text string, at ...int) {
		for _, i := range at {
			lines[i] = fmt.Sprintf("{\"id\":%d,\"size\":%q}\n", i, text)
		}
	}
	set("large", 33, 35, 37, 210)
	set("not on 0", 34, 211)
	set("not on 1", 36, 212)
	d := newJobDir(t, strings.Join(lines, ""))
	c := d.config("test-memory")
	c.Batching.Size, c.Batching.ChunksPerGPU = 16, 2
	c.Kernel.Config = fmt.Appendf(nil, `{"Room":16,"Log":%q}`, d.join("memory.log"))
	report := mustRun(t, d, c)
	for i, line := range slices.Collect(strings.Lines(d.read("out.jsonl"))) {
		want := ""
		if slices.Contains([]int{33, 35, 37, 210}, i) {
			want = "oom"
		}
		if got := marks(t, line)[0]; got != want {
			t.Errorf("record %d is marked %q, want %q", i, got, want)
		}
	}
	if report.Failed != 4 {
		t.Errorf("report: %+v", report)
	}
	alone := make(map[string][]int)
	for _, a := range memoryLog(t, d) {
		if a.records == 1 && strings.Contains(a.first, `"large"`) {
			alone[a.first] = append(alone[a.first], a.device)
		}
	}
	for record, devices := range alone {
		if !slices.Contains(devices, 0) || !slices.Contains(devices, 1) {
			t.Errorf("%s was tried alone on %v only", record, devices)
		}
	}
	for _, w := range report.Workers {
		if w.Lost > 0 {
			t.Errorf("worker: %+v", w)
		}
	}
}

// TestStraggler: a worker ten times slower than the other does not delay the end: work
// is taken from it. BenchmarkStraggler measures the delay.
func TestStraggler(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	for _, chunks := range []int{1, 16} {
		t.Run(fmt.Sprint(chunks), func(t *testing.T) {
			t.Parallel()
			run := straggle(t, t.TempDir(), chunks)
			t.Logf("%d chunks for each: took %.2f s, ideal %.2f s, ratio %.3f", chunks, run.took, run.ideal, run.took/run.ideal)
			if run.slowest > run.records/5 || run.slowest == 0 {
				t.Errorf("the slow worker did %d of %d records", run.slowest, run.records)
			}
		})
	}
}

// straggling is the result of a job with a slow worker.
type straggling struct {
	records, slowest int64   // in total, and by the slow worker
	took, ideal      float64 // seconds
}

// straggle runs a job on two workers, one ten times slower than the other.
func straggle(t testing.TB, dir string, chunks int) straggling {
	t.Helper()
	const records, micros, slow = 10_000, 500, 10
	if err := os.WriteFile(dir+"/in.jsonl", []byte(numbered(records)), 0o666); err != nil {
		t.Fatal(err)
	}
	c := orchestrator.Config{
		Input: orchestrator.Input{Path: dir + "/in.jsonl"}, Output: orchestrator.Output{Path: dir + "/out.jsonl", Force: true}, Kernel: orchestrator.Kernel{Name: "test-work", Config: fmt.Appendf(nil, `{"Micros":%d,"Slow":%d}`, micros, slow)}, Devices: orchestrator.Devices{GPUs: "cpu:2"},
		Batching: orchestrator.Batching{Size: 32, ChunksPerGPU: chunks},
	}
	var ready, last time.Time
	watch(&c, func(name string, passing int, _ orchestrator.Event) {
		switch {
		case name == "worker_ready" && passing == 2:
			ready = time.Now()
		case name == "chunk_done":
			last = time.Now()
		}
	})
	report, err := orchestrator.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	// Ideal is when both work to the end, each at its measured speed.
	var rates float64
	for _, w := range report.Workers {
		rates += float64(w.Records) / w.Busy.Seconds()
	}
	return straggling{
		records: records, slowest: report.Workers[0].Records,
		took: last.Sub(ready).Seconds(), ideal: records / rates,
	}
}

// TestSharedStream: a chunk of a stream that two workers share exists until both have
// finished their half.
func TestSharedStream(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(1200))
	input, err := os.Open(d.join("in.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	c := d.config("test-work")
	c.Input.Path, c.Input.Stdin = "-", input
	c.Batching.Size, c.Input.ChunkRecords = 4, 1200 // one chunk for two workers
	c.Resume.Checkpoint = 50 * time.Millisecond     // so that it is opened again and again
	c.Kernel.Config = []byte(`{"Milliseconds":5,"Slow":4}`)
	report := mustRun(t, d, c)
	for _, w := range report.Workers {
		if w.Records == 0 {
			t.Errorf("worker %d had nothing: this test shows nothing", w.Slot)
		}
	}
	if got := strings.Count(d.read("out.jsonl"), "\n"); got != 1200 || report.Succeeded != 1200 {
		t.Errorf("%d lines, report %+v", got, report)
	}
}
