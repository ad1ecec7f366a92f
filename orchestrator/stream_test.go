package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// streamConfig is a job without files; its job folder is in a folder of the test.
func streamConfig(t *testing.T, kernel string) (config orchestrator.Config, work string) {
	t.Helper()
	work = t.TempDir()
	return orchestrator.Config{
		Kernel: orchestrator.Kernel{Name: kernel}, Devices: orchestrator.Devices{GPUs: "cpu:2"},
		Input: orchestrator.Input{Flush: 20 * time.Millisecond}, Resume: orchestrator.Resume{WorkDir: work},
		Batching: orchestrator.Batching{Size: 4},
	}, work
}

// these yields records.
func these(records ...string) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		for _, record := range records {
			if !yield(orchestrator.Record(record), nil) {
				return
			}
		}
	}
}

// nothingLeft: a stream leaves no file.
func nothingLeft(t *testing.T, work string) {
	t.Helper()
	entries, err := os.ReadDir(work)
	if err != nil || len(entries) > 0 {
		t.Errorf("the work folder has %v, %v", entries, err)
	}
}

// resultText describes a result for comparison.
func resultText(r orchestrator.Result) string {
	if r.Failure != nil {
		return fmt.Sprintf("%d failed: %s: %s (%s) %q", r.Index, r.Failure.Kind, r.Failure.Message, r.Failure.Step, r.Failed)
	}
	text := fmt.Sprint(r.Index)
	for _, record := range r.Records {
		text += " " + string(record)
	}
	return text
}

// TestStream: every record has its result, in order, with what became of it.
func TestStream(t *testing.T) {
	config, work := streamConfig(t, "test-work")
	var got []string
	records := these(`{"id":1}`, `{"do":"drop"}`, `{"do":"two"}`, "{\"id\":\n 2}\r\n", ``, " \n", `{"do":"fail"}`, `not JSON`, `[1]`,
		`{"id":3,"_error":{"kind":"record"}}`, `{"id":4}`)
	for result, err := range orchestrator.Stream(t.Context(), config, records) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, resultText(result))
	}
	want := []string{
		`0 {"id":1,"length":8}`, `1`, `2 {"one":1} {"two":2}`, `3 {"id":  2,"length":10}`,
		`4 failed: record: the record is empty (test-work) ""`, `5 failed: record: the record is empty`,
		`6 failed: record: rejected (test-work) "{\"do\":\"fail\"}"`, `7 failed: record: not valid JSON: invalid character 'o' at byte 1 (test-work) "not JSON"`,
		`8 failed: record`, `9 failed: upstream: the record already has an _error in the input`, `10 {"id":4,"length":8}`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d results: %s", len(got), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
	nothingLeft(t, work)
}

// TestStreamOrder: many records through several workers arrive in order, and a sequence can
// be ranged over again.
func TestStreamOrder(t *testing.T) {
	config, work := streamConfig(t, "echo")
	config.Input.ChunkRecords = 50
	const records = 20_000
	numbers := func(yield func(orchestrator.Record, error) bool) {
		var buffer []byte // reused: Stream copies
		for i := range records {
			buffer = fmt.Appendf(buffer[:0], `{"id":%d}`, i)
			if !yield(buffer, nil) {
				return
			}
		}
	}
	stream := orchestrator.Stream(t.Context(), config, numbers)
	for range 2 {
		next := int64(0)
		for result, err := range stream {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`%d {"id":%d}`, next, next); resultText(result) != want {
				t.Fatalf("%s, want %s", resultText(result), want)
			}
			next++
		}
		if next != records {
			t.Errorf("%d results of %d records", next, records)
		}
	}
	nothingLeft(t, work)
}

// TestStreamMemory: memory does not grow with the number of records.
func TestStreamMemory(t *testing.T) {
	config, work := streamConfig(t, "echo")
	config.Batching.Size = 0
	const records, size = 100_000, 1000 // 100 MB
	record := []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)
	numbers := func(yield func(orchestrator.Record, error) bool) {
		for range records {
			if !yield(record, nil) {
				return
			}
		}
	}
	before, most := liveHeap(), uint64(0)
	for result, err := range orchestrator.Stream(t.Context(), config, numbers) {
		if err != nil {
			t.Fatal(err)
		}
		if result.Index%(records/5) == 0 {
			most = max(most, liveHeap())
		}
	}
	if most > before+records*size/5 {
		t.Errorf("%d bytes of memory before, %d at most", before, most)
	}
	nothingLeft(t, work)
}

// liveHeap returns the size of the reachable objects.
func liveHeap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestStreamInStep: the result of a record arrives although no other record follows, even
// if the first one fails and one worker has none.
func TestStreamInStep(t *testing.T) {
	config, work := streamConfig(t, "test-work")
	results := make(chan struct{}, 1)
	sent := 0
	records := func(yield func(orchestrator.Record, error) bool) {
		for ; sent < 5; sent++ {
			if !yield(orchestrator.Record(`{"do":"fail"}`), nil) {
				return
			}
			<-results
		}
	}
	got := 0
	for _, err := range orchestrator.Stream(t.Context(), config, records) {
		if err != nil {
			t.Fatal(err)
		}
		got++
		results <- struct{}{}
	}
	if got != 5 {
		t.Errorf("%d results", got)
	}
	nothingLeft(t, work)
}

// workersOf collects the workers of a job.
type workersOf struct {
	mu   sync.Mutex
	pids []int
}

func (w *workersOf) event(e orchestrator.Event) {
	if started, ok := e.(orchestrator.WorkerStarted); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pids = append(w.pids, started.PID)
	}
}

// gone: no process of the job is left.
func (w *workersOf) gone(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pids) == 0 {
		t.Error("no worker was started")
	}
	for _, pid := range w.pids {
		if alive(pid) {
			t.Errorf("worker %d is alive", pid)
		}
	}
	if children := childrenOf(os.Getpid()); len(children) > 0 {
		t.Errorf("processes are left: %v", describe(children))
	}
}

// TestStreamBreak: leaving the loop ends the job, its processes and its producer.
func TestStreamBreak(t *testing.T) {
	for kernel, settings := range map[string]string{"echo": "", "test-slow": `{"milliseconds":1}`} {
		t.Run(kernel, func(t *testing.T) {
			config, work := streamConfig(t, kernel)
			config.Kernel.Config = []byte(settings)
			var workers workersOf
			config.Display.OnEvent = workers.event
			ended := make(chan struct{})
			endless := func(yield func(orchestrator.Record, error) bool) {
				defer close(ended)
				for i := 0; yield(fmt.Appendf(nil, `{"id":%d}`, i), nil); i++ {
				}
			}
			for result, err := range orchestrator.Stream(t.Context(), config, endless) {
				if err != nil {
					t.Fatal(err)
				}
				if result.Index == 10 {
					break
				}
			}
			workers.gone(t)
			nothingLeft(t, work)
			<-ended
		})
	}
}

// TestStreamBlockedProducer: a producer that never returns does not hold up the end.
func TestStreamBlockedProducer(t *testing.T) {
	config, work := streamConfig(t, "echo")
	release := make(chan struct{})
	defer close(release)
	records := func(yield func(orchestrator.Record, error) bool) {
		if yield(orchestrator.Record(`{}`), nil) {
			<-release
		}
	}
	for range orchestrator.Stream(t.Context(), config, records) {
		break
	}
	nothingLeft(t, work)
}

// TestStreamBackPressure: while the program takes no result, no more than some chunks of
// records are read, however long that takes.
func TestStreamBackPressure(t *testing.T) {
	config, work := streamConfig(t, "echo")
	config.Input.ChunkRecords = 4
	var read atomic.Int64
	big := []byte(`{"text":"` + strings.Repeat("x", 50_000) + `"}`)
	endless := func(yield func(orchestrator.Record, error) bool) {
		for yield(big, nil) {
			read.Add(1)
		}
	}
	for range orchestrator.Stream(t.Context(), config, endless) {
		// Wait until nothing more is read.
		for before := int64(-1); before != read.Load(); time.Sleep(500 * time.Millisecond) {
			before = read.Load()
		}
		if ahead := read.Load(); ahead > 1000 {
			t.Errorf("%d records were read ahead", ahead)
		}
		break
	}
	nothingLeft(t, work)
}

// TestStreamProducerFails: the results of the records before the error arrive, then the
// error.
func TestStreamProducerFails(t *testing.T) {
	config, work := streamConfig(t, "echo")
	failed := errors.New("the database is gone")
	var got []string
	for result, err := range orchestrator.Stream(t.Context(), config, func(yield func(orchestrator.Record, error) bool) {
		for i := range 10 {
			if !yield(fmt.Appendf(nil, `{"id":%d}`, i), nil) {
				return
			}
		}
		if yield(nil, failed) {
			t.Error("the producer was asked for more after its error")
		}
	}) {
		if err != nil {
			if !errors.Is(err, failed) || len(got) != 10 {
				t.Errorf("%v after %d results", err, len(got))
			}
			got = append(got, "error")
			continue
		}
		got = append(got, resultText(result))
	}
	if len(got) != 11 || got[10] != "error" {
		t.Errorf("%v", got)
	}
	nothingLeft(t, work)
}

// TestStreamErrors: what ends a job is the last pair.
func TestStreamErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*orchestrator.Config)
		kind   fault.Kind
		text   string
	}{
		"a path":          {func(c *orchestrator.Config) { c.Input.Path = "in.jsonl" }, fault.Usage, "a stream of records has no input: in.jsonl"},
		"paths":           {func(c *orchestrator.Config) { c.Input.Paths = []string{"a.jsonl", "b.jsonl"} }, fault.Usage, "no input: a.jsonl b.jsonl"},
		"an input format": {func(c *orchestrator.Config) { c.Input.Format = "csv" }, fault.Usage, "no input format: csv"},
		"a format":        {func(c *orchestrator.Config) { c.Output.Format = "jsonl.gz" }, fault.Usage, "no output format: jsonl.gz"},
		"an errors file":  {func(c *orchestrator.Config) { c.Output.Errors = "errors.jsonl" }, fault.Usage, "no errors file: errors.jsonl"},
		"no kernel":       {func(c *orchestrator.Config) { c.Kernel.Name = "" }, fault.Usage, "no kernel"},
		"unknown kernel":  {func(c *orchestrator.Config) { c.Kernel.Name = "ecko" }, fault.Incompatible, "did you mean echo"},
		"failing kernel":  {func(c *orchestrator.Config) { c.Kernel.Name = "exec:exit 3" }, fault.Incompatible, ""},
		"too many failed": {func(c *orchestrator.Config) { c.Failures.Halt.Records = 1; c.Kernel.Name = "test-work" }, fault.Stopped, "records failed"},
	} {
		t.Run(name, func(t *testing.T) {
			config, work := streamConfig(t, "echo")
			test.change(&config)
			var last error
			endless := func(yield func(orchestrator.Record, error) bool) { // a short job may be done before it can be stopped
				for more := yield([]byte(`{}`), nil); more; { // one succeeds: the kernel can compute
					more = yield([]byte(`{"do":"fail"}`), nil)
				}
			}
			for _, err := range orchestrator.Stream(t.Context(), config, endless) {
				if last != nil {
					t.Error("something after the error")
				}
				last = err
			}
			wantFault(t, last, test.kind, test.text)
			nothingLeft(t, work)
		})
	}
}

func repeated(text string, n int) (list []string) {
	for range n {
		list = append(list, text)
	}
	return list
}

// TestStreamCanceled: a canceled context ends the loop with its error.
func TestStreamCanceled(t *testing.T) {
	config, work := streamConfig(t, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers workersOf
	config.Display.OnEvent = workers.event
	endless := func(yield func(orchestrator.Record, error) bool) {
		for yield(orchestrator.Record(`{}`), nil) {
		}
	}
	var last error
	for _, err := range orchestrator.Stream(ctx, config, endless) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Error(last)
	}
	workers.gone(t)
	nothingLeft(t, work)
}

// TestStreamConcurrent: a kernel that answers records in any order gives results in theirs,
// each as soon as it is its turn.
func TestStreamConcurrent(t *testing.T) {
	config, work := streamConfig(t, "test-calls")
	config.Kernel.Config = fmt.Appendf(nil, `{"calls":%q}`, filepath.Join(t.TempDir(), "calls"))
	const count = 60
	turn := make(chan struct{}, count)
	records := func(yield func(orchestrator.Record, error) bool) {
		for i := range count {
			record := fmt.Appendf(nil, `{"id":%d,"sleep":%d}`, i, 7*i%30)
			if i == 20 {
				record = []byte(`not JSON`)
			}
			if !yield(record, nil) {
				return
			}
			if i >= count/2 { // one after another
				<-turn
			}
		}
	}
	next := int64(0)
	for result, err := range orchestrator.Stream(t.Context(), config, records) {
		if err != nil {
			t.Fatal(err)
		}
		if result.Index != next || (result.Failure != nil) != (next == 20) {
			t.Errorf("%s, want that of record %d", resultText(result), next)
		}
		if next == 20 && string(result.Failed) != "not JSON" || next != 20 && !strings.Contains(resultText(result), fmt.Sprintf(`"id":%d`, next)) {
			t.Errorf("%s", resultText(result))
		}
		if next++; next > count/2 {
			turn <- struct{}{}
		}
	}
	if next != count {
		t.Errorf("%d results", next)
	}
	nothingLeft(t, work)
}

// TestStreamCrash: a kernel that dies costs only the record that kills it.
func TestStreamCrash(t *testing.T) {
	config, work := streamConfig(t, "test-poison")
	var failed []int64
	count := 0
	records := append(repeated(`{"id":1}`, 30), `{"poison":"exit"}`)
	records = append(records, repeated(`{"id":2}`, 30)...)
	for result, err := range orchestrator.Stream(t.Context(), config, these(records...)) {
		if err != nil {
			t.Fatal(err)
		}
		if count++; result.Failure != nil {
			failed = append(failed, result.Index)
			if result.Failure.Kind.String() != "crash" {
				t.Errorf("%+v", result.Failure)
			}
		}
	}
	if count != 61 || len(failed) != 1 || failed[0] != 30 {
		t.Errorf("%d results, failed: %v", count, failed)
	}
	nothingLeft(t, work)
}
