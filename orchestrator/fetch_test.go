package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// readsFiles returns the checksum of each record's file, and misbehaves like poison on
// records that ask for it.
type readsFiles struct{ poison }

func (*readsFiles) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{ReadsFetched: true, InFlight: 2}, nil
}

func (k *readsFiles) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		if value, _ := batch.Member(i, "poison"); len(value) > 0 {
			return k.poison.Process(ctx, batch, results)
		}
	}
	sums := make([]int64, batch.Len())
	for i := range sums {
		file, found := batch.Fetched(i, "file")
		if !found {
			return fmt.Errorf("record %d has no file", i)
		}
		sums[i] = int64(crc32.ChecksumIEEE(file))
	}
	time.Sleep(time.Millisecond)
	results.Column(plugins.Int64s("sum", 0, sums))
	return nil
}

// readsEach does the same as a concurrent kernel.
type readsEach struct{ readsFiles }

func (*readsEach) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{ReadsFetched: true, Concurrency: 16}, nil
}

func (*readsEach) Answer(_ context.Context, record plugins.Record) plugins.Answer {
	switch value, _ := record.Member("poison"); string(value) {
	case `"error"`:
		return plugins.FailedBy(errors.New("cannot compute this batch"))
	case `"exit"`:
		os.Exit(7)
	}
	if _, twice := record.Member("twice"); twice { // and not before a checkpoint
		if _, again := seen.LoadOrStore(string(record.Bytes()), true); !again {
			time.Sleep(100 * time.Millisecond)
			return plugins.RetryAfter(time.Millisecond, "busy")
		}
	}
	file, found := record.Fetched("file")
	if !found {
		return plugins.Rejected("it has no file")
	}
	time.Sleep(time.Millisecond)
	line, err := record.With(plugins.NewMember{Name: "sum", Value: fmt.Append(nil, crc32.ChecksumIEEE(file))})
	if err != nil {
		return plugins.FailedBy(err)
	}
	return plugins.Replaced(line)
}

// seen are the lines that a kernel process has seen.
var seen sync.Map

// fileServer serves a file of its own at each path, /bad…: none. It counts requests.
type fileServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests map[string]int
	broken   bool // one in ten files is missing
	gone     bool // all files are
}

func serveFiles(t *testing.T) *fileServer {
	s := &fileServer{requests: make(map[string]int)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests[r.URL.Path]++
		broken, gone := s.broken, s.gone
		s.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/slow") {
			time.Sleep(200 * time.Millisecond)
		}
		if strings.HasPrefix(r.URL.Path, "/bad") || gone || broken && strings.HasSuffix(r.URL.Path, "1") {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, fileAt(r.URL.Path))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *fileServer) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

// fileAt returns a file of up to 20 KB.
func fileAt(path string) string {
	sum := crc32.ChecksumIEEE([]byte(path))
	return strings.Repeat(path, int(sum%1000)+1)
}

func sumOf(path string) uint32 { return crc32.ChecksumIEEE([]byte(fileAt(path))) }

func (d jobDir) fetching(kernel string) orchestrator.Config {
	c := d.config(kernel)
	c.Fetch = orchestrator.Fetch{Members: []orchestrator.FetchMember{{Name: "file", Field: "url"}}, AllowPrivate: true}
	c.Batching.Size = 16
	return c
}

// Files stay with their records, through bisecting, restarts, grouping and small batches.
func TestFetchedFilesStayWithTheirRecords(t *testing.T) {
	t.Parallel()
	server := serveFiles(t)
	var in, want strings.Builder
	for i := range 400 {
		path := fmt.Sprintf("/%d", i)
		line := fmt.Sprintf(`{"id":%d,"url":"%s%s"`, i, server.URL, path)
		switch {
		case i == 130:
			line += `,"poison":"error"`
			fmt.Fprintf(&want, "%s,\"_error\":{\"kind\":\"batch\",\"message\":\"cannot compute this batch\",\"step\":\"test-files\",\"line\":%d}}\n", line, i+1)
		case i == 210:
			line += `,"poison":"exit"`
			fmt.Fprintf(&want, "%s,\"_error\":{\"kind\":\"crash\",\"message\":\"kernel process ended: exit status 7\",\"step\":\"test-files\",\"line\":%d}}\n", line, i+1)
		case i%100 == 20:
			line += `,"twice":true`
			fmt.Fprintf(&want, "%s,\"sum\":%d}\n", line, sumOf(path))
		case i%100 == 50:
			line = fmt.Sprintf(`{"id":%d,"url":"%s/bad%d?signature=secret"`, i, server.URL, i)
			fmt.Fprintf(&want, "%s,\"_error\":{\"kind\":\"fetch\",\"message\":\"HTTP 404 from %s\",\"step\":\"test-files\",\"line\":%d}}\n",
				line, server.Listener.Addr(), i+1)
		default:
			fmt.Fprintf(&want, "%s,\"sum\":%d}\n", line, sumOf(path))
		}
		fmt.Fprintf(&in, "%s}\n", line)
	}
	each := func(c *orchestrator.Config) { c.Kernel.Name = "test-files-each" }
	for name, change := range map[string]func(*orchestrator.Config){
		"batches": func(*orchestrator.Config) {},
		"records": each,
		"records, checkpoints": func(c *orchestrator.Config) {
			each(c)
			c.Resume.Checkpoint = 50 * time.Millisecond
		},
		"records, one": func(c *orchestrator.Config) {
			each(c)
			c.Batching.Bytes, c.Fetch.Concurrency, c.Fetch.PerHost = 1000, 1, 1
		},
		"grouped":   func(c *orchestrator.Config) { c.Batching.GroupBy = "id" },
		"tiny":      func(c *orchestrator.Config) { c.Batching.Bytes = 1000 },
		"one":       func(c *orchestrator.Config) { c.Fetch.Concurrency, c.Fetch.PerHost = 1, 1 },
		"tiny, one": func(c *orchestrator.Config) { c.Batching.Bytes, c.Fetch.Concurrency, c.Batching.GroupBy = 1, 2, "id" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, in.String())
			c := d.fetching("test-files")
			change(&c)
			report, err := run(t, c)
			checkReport(t, report, err)
			if got := strings.ReplaceAll(d.read("out.jsonl"), "test-files-each", "test-files"); got != want.String() {
				t.Errorf("the output differs:\n%.2000s", got)
			}
		})
	}
}

// A resumed job fetches what is not committed, and a retry what has failed; neither fetches
// anything else.
func TestFetchOnlyWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"test-files", "test-files-each"} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			testFetchNeeded(t, kernel)
		})
	}
}

func testFetchNeeded(t *testing.T, kernel string) {
	const n = 1200
	server := serveFiles(t)
	server.broken = true
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, "{\"id\":%d,\"url\":\"%s/%d\"}\n", i, server.URL, i)
	}
	d := newJobDir(t, in.String())
	c := d.fetching(kernel)
	c.Devices.GPUs = "cpu:1"
	c.Failures.Halt.Records = 40
	first, err := run(t, c)
	if fault.KindOf(err) != fault.Stopped {
		t.Fatalf("%v", err)
	}
	done := first.In - first.Pending
	if done == 0 || done == n {
		t.Fatalf("%d records are done: this test shows nothing", done)
	}
	c.Failures.Halt.Records = 0
	report, err := run(t, c)
	checkReport(t, report, err)
	again := 0
	for i := range n {
		if server.count(fmt.Sprintf("/%d", i)) > 1 {
			again++
		}
	}
	if again > n-int(done) {
		t.Errorf("%d of %d records were committed, but %d were fetched again", done, n, again)
	}

	server.mu.Lock()
	server.broken, server.requests = false, make(map[string]int)
	server.mu.Unlock()
	if _, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: d.join("out.jsonl")}, Devices: orchestrator.Devices{GPUs: "cpu:1"}}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		want := 0
		if strings.HasSuffix(fmt.Sprint(i), "1") {
			want = 1
		}
		if got := server.count(fmt.Sprintf("/%d", i)); got != want {
			t.Errorf("a retry requests record %d %d times", i, got)
		}
	}
	if out := d.read("out.jsonl"); strings.Contains(out, "_error") || strings.Count(out, `"sum"`) != n {
		t.Errorf("%.500s", out)
	}
}

// A job none of whose files can be fetched stops early, without an output, and the same
// command works once they can be.
func TestNoFileCanBeFetched(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"test-files", "test-files-each"} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			const n = 4_000
			server := serveFiles(t)
			server.gone = true
			var in strings.Builder
			for i := range n {
				fmt.Fprintf(&in, "{\"id\":%d,\"url\":\"%s/%d\"}\n", i, server.URL, i)
			}
			d := newJobDir(t, in.String())
			c := d.fetching(kernel)
			_, err := run(t, c)
			wantFault(t, err, fault.Incompatible, "no file can be fetched: each of the first 1", "records failed, one of them with: HTTP 404 from")
			server.mu.Lock()
			requests := len(server.requests)
			server.gone = false
			server.mu.Unlock()
			if _, err := os.Stat(d.join("out.jsonl")); err == nil || requests > n/2 {
				t.Errorf("%d files were requested, output: %v", requests, err)
			}
			mustRun(t, d, c)
			if got := strings.Count(d.read("out.jsonl"), `"sum"`); got != n {
				t.Errorf("%d results", got)
			}
		})
	}
}

// A job that was stopped where files are missing is not stopped there again.
func TestResumeWhereFilesAreMissing(t *testing.T) {
	t.Parallel()
	server := serveFiles(t)
	var in strings.Builder
	for i := range 3000 {
		path := fmt.Sprintf("/bad%d", i)
		if i < 64 {
			path = fmt.Sprintf("/%d", i)
		}
		fmt.Fprintf(&in, "{\"id\":%d,\"url\":\"%s%s\"}\n", i, server.URL, path)
	}
	d := newJobDir(t, in.String())
	c := d.fetching("test-files")
	c.Devices.GPUs, c.Failures.Halt.Records = "cpu:1", 50
	if _, err := run(t, c); fault.KindOf(err) != fault.Stopped {
		t.Fatal(err)
	}
	c.Failures.Halt.Records = 0
	report, err := run(t, c)
	checkReport(t, report, err)
	if report.Failed != 3000-64 {
		t.Errorf("%d failed", report.Failed)
	}
}

// A job that stops does not wait for files that never arrive.
func TestStopDoesNotWaitForFiles(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hang)
	d := newJobDir(t, strings.Repeat(fmt.Sprintf("{\"url\":%q}\n", server.URL), 100))
	for _, kernel := range []string{"test-files", "test-files-each"} {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began, told := time.Now(), false
		c := d.fetching(kernel)
		job := view.NewCollector(time.Now)
		c.Display.OnEvent = func(event orchestrator.Event) {
			job.Event(event)
			if e, ok := event.(orchestrator.Progress); ok && e.Awaits == orchestrator.AwaitsFiles {
				if w := job.View().Workers; w[e.Slot].Phase == view.PhaseFetching {
					told = true
					cancel()
				}
			}
		}
		_, err := runContext(t, ctx, c)
		if !told {
			t.Errorf("%s: no event says that the kernel waits for files", kernel)
		}
		if fault.KindOf(err) != fault.Canceled || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %v after %s", kernel, err, time.Since(began))
		}
	}
	if _, err := os.Stat(d.join("out.jsonl")); err == nil {
		t.Error("there is an output")
	}
}

// Idle workers share a chunk whose files take long to arrive, but do not pass it to each other
// forever. No record reaches the kernel, so that both workers seem equally fast.
func TestShareWhileFilesArrive(t *testing.T) {
	t.Parallel()
	server := serveFiles(t)
	bad := func(path string, n int) string {
		return strings.Repeat(fmt.Sprintf("{\"url\":%q}\n", server.URL+path), n)
	}
	in := "{\"url\":\"data:,good\"}\n" + bad("/bad", 479) + bad("/bad/slow", 32) // 16 chunks, each of two batches
	for name, change := range map[string]func(*orchestrator.Config){
		"batches": func(*orchestrator.Config) {},
		"grouped": func(c *orchestrator.Config) { c.Batching.GroupBy = "url" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newJobDir(t, in).fetching("test-files")
			c.Batching.ChunksPerGPU = 8
			change(&c)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			report, err := runContext(t, ctx, c)
			if err != nil || report.Failed != 511 {
				t.Errorf("%d records failed: %v", report.Failed, err)
			}
		})
	}
}

// Records in messages instead of shared memory.
func TestFetchInline(t *testing.T) {
	t.Setenv("GPURUN_INLINE", "1")
	d := newJobDir(t, "{\"url\":\"data:,hello\"}\n{\"url\":\"data:,\"}\n")
	report, err := run(t, d.fetching("test-files"))
	checkReport(t, report, err)
	want := fmt.Sprintf("{\"url\":\"data:,hello\",\"sum\":%d}\n{\"url\":\"data:,\",\"sum\":0}\n", crc32.ChecksumIEEE([]byte("hello")))
	if got := d.read("out.jsonl"); got != want {
		t.Errorf("%s", got)
	}
}
