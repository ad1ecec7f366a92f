package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// calls is a concurrent kernel that does what a record asks for, and appends the id of each
// record that it is called for to a file.
type calls struct {
	plugins.Base
	away   atomic.Bool // no record can be tried for now
	config struct {
		Calls        string
		Concurrency  int
		Milliseconds int
		NoDevice     bool
		Needs        []string
		Tokens       int64 // that each answer has used
		Fetched      bool  // each record has a file
	}
}

type asking struct {
	ID     int
	Do     string
	Sleep  int // milliseconds
	Until  int // calls
	Times  int
	Answer string
}

func (k *calls) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	k.config.Concurrency = 8
	err := config.Decode(&k.config)
	return plugins.Info{
		Name: "calls", Concurrency: k.config.Concurrency,
		NoDevice: k.config.NoDevice, ReadsFetched: k.config.Fetched, Inputs: k.config.Needs, NeedsInputs: len(k.config.Needs) > 0,
	}, err
}

func (k *calls) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, k, k.config.Concurrency, batch, results)
}

// note appends the call to the file, and returns how many calls there were for the record.
func (k *calls) note(id int) int {
	file, err := os.OpenFile(k.config.Calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "%d\n", id)
	return callsOf(k.config.Calls, id)
}

// callLog is the file that calls are noted in, as far as this process has read it. Reading all of it
// for every call would take most of the time of a test.
type callLog struct {
	mu     sync.Mutex
	size   int64
	counts map[int]int // by record
}

var callLogs sync.Map // *callLog, by path

// callsIn returns the log with what was noted since, locked.
func callsIn(path string) *callLog {
	found, _ := callLogs.LoadOrStore(path, &callLog{counts: make(map[int]int)})
	log := found.(*callLog)
	log.mu.Lock()
	file, err := os.Open(path)
	if err != nil { // no call yet
		return log
	}
	defer file.Close()
	data, _ := io.ReadAll(io.NewSectionReader(file, log.size, math.MaxInt64-log.size))
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		id, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
		log.counts[id]++
		log.size += int64(len(line))
	}
	return log
}

// countCalls returns how often each record was called.
func countCalls(path string) map[int]int {
	log := callsIn(path)
	defer log.mu.Unlock()
	return maps.Clone(log.counts)
}

// callsOf returns how often a record was called.
func callsOf(path string, id int) int {
	log := callsIn(path)
	defer log.mu.Unlock()
	return log.counts[id]
}

// called returns how many records were called.
func called(path string) int {
	log := callsIn(path)
	defer log.mu.Unlock()
	return len(log.counts)
}

func (k *calls) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	var ask asking
	if err := record.Decode(&ask); err != nil {
		return plugins.Rejected("%v", err)
	}
	n, away := k.note(ask.ID), k.away.Load()
	select {
	case <-time.After(time.Duration(ask.Sleep+k.config.Milliseconds) * time.Millisecond):
	case <-ctx.Done():
		return plugins.FailedBy(ctx.Err())
	}
	if away && ask.Do != "later" {
		return plugins.TryLater(10*time.Millisecond, "the server is away")
	}
	if file, found := record.Fetched("file"); k.config.Fetched && (!found || string(file) != fileAt(fmt.Sprint("/", ask.ID))) {
		return plugins.Rejected("it has no file, or that of another record")
	}
	for called(k.config.Calls) < ask.Until {
		time.Sleep(5 * time.Millisecond)
	}
	switch ask.Do {
	case "exit":
		fmt.Fprintln(os.Stderr, "my last words")
		os.Exit(7)
	case "exit once":
		if n == 1 {
			os.Exit(7)
		}
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "worker":
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "hang":
		<-ctx.Done()
		return plugins.FailedBy(ctx.Err())
	case "ignore":
		time.Sleep(time.Hour)
	case "retry":
		if n <= ask.Times {
			return plugins.RetryAfter(time.Millisecond, "busy")
		}
	case "later":
		if k.away.Store(n <= ask.Times); n <= ask.Times {
			return plugins.TryLater(10*time.Millisecond, "the server is away")
		}
	case "stop once":
		if n == 1 {
			return plugins.FailedBy(plugins.Stop(errors.New("the server stays away")))
		}
	case "reject":
		return plugins.Rejected("no")
	case "error":
		return plugins.FailedBy(errors.New("broken"))
	case "oom":
		return plugins.FailedBy(plugins.OutOfMemory(errors.New("out of memory")))
	case "drop":
		return plugins.Replaced()
	case "none":
		return plugins.Answer{}
	case "huge":
		return plugins.Replaced([]byte(`"` + strings.Repeat("x", 80<<20) + `"`))
	case "two":
		return plugins.Replaced([]byte(`1`), []byte(`2`))
	}
	line, err := record.With(plugins.NewMember{Name: "answer", Value: []byte(fmt.Sprint(2 * ask.ID))})
	if err != nil {
		return plugins.Rejected("%v", err)
	}
	answer := plugins.Replaced(line)
	if k.config.Tokens > 0 {
		answer.Figures = map[string]int64{"total_tokens": k.config.Tokens}
	}
	return answer
}

// callsJob returns a job for the kernel calls.
func callsJob(t *testing.T, input string, concurrency int) (jobDir, orchestrator.Config) {
	t.Helper()
	d := newJobDir(t, input)
	c := d.config("test-calls")
	c.Devices.GPUs = "cpu:1"
	c.Kernel.Config, _ = json.Marshal(map[string]any{"Calls": d.join("calls"), "Concurrency": concurrency})
	return d, c
}

// asks returns n records; do says what record i asks for, "" for nothing.
func asks(n int, do func(i int) string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":%d%s}\n", i, do(i))
	}
	return b.String()
}

// checkAnswers checks that every record is there, in order, answered or failed by its kind.
func checkAnswers(t *testing.T, d jobDir, n int, failed map[int]string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(d.read("out.jsonl"), "\n"), "\n")
	if len(lines) != n {
		t.Fatalf("%d lines, want %d\n%s", len(lines), n, d.logs())
	}
	for i, line := range lines {
		var got struct {
			ID     int
			Answer *int
			Error  *struct{ Kind, Message string } `json:"_error"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.ID != i {
			t.Fatalf("line %d is %s (%v)", i, line, err)
		}
		kind, fails := failed[i]
		switch {
		case fails && (got.Error == nil || got.Error.Kind != kind):
			t.Errorf("record %d should fail (%s), not: %s", i, kind, line)
		case !fails && (got.Answer == nil || *got.Answer != 2*i):
			t.Errorf("record %d: %s", i, line)
		}
	}
}

// Records are answered in any order and written in input order, each is sent once, and a
// slow one does not stall the others: it waits until all of them are called.
func TestConcurrentOrder(t *testing.T) {
	t.Parallel()
	const n = 400
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == 3 {
			return fmt.Sprintf(`,"until":%d`, n)
		}
		return fmt.Sprintf(`,"sleep":%d`, i*7%13)
	}), 16)
	r := mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	if got := len(strings.Fields(d.read("calls"))); got != n || r.Succeeded != n {
		t.Errorf("%d calls for %d records, %d succeeded", got, n, r.Succeeded)
	}
}

// Verdicts of one record: each costs only itself.
func TestConcurrentVerdicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		do    string
		kind  string // "" if it succeeds in the end
		calls int    // 0: any number
	}{
		{"reject", "record", 1}, {"error", "batch", 1}, {"none", "batch", 1}, {"huge", "batch", 1},
		{"hang", "timeout", 1}, {"exit", "crash", 0}, {"exit once", "", 0}, {"ignore", "timeout", 0}, {"oom", "oom", 0},
	} {
		t.Run(test.do, func(t *testing.T) {
			t.Parallel()
			const n, bad = 100, 37
			d, c := callsJob(t, asks(n, func(i int) string {
				if i == bad {
					return fmt.Sprintf(`,"do":%q`, test.do)
				}
				return `,"sleep":3`
			}), 16)
			if test.kind == "timeout" { // a loaded machine may need long for the others
				c.Failures.Timeout = 2 * time.Second
			}
			failed := map[int]string{}
			if test.kind != "" {
				failed[bad] = test.kind
			}
			r, err := run(t, c)
			if err != nil {
				t.Fatalf("%v\n%s", err, d.logs())
			}
			checkAnswers(t, d, n, failed)
			if counts := countCalls(d.join("calls")); test.calls > 0 && (counts[bad] != test.calls || len(strings.Fields(d.read("calls"))) != n) {
				t.Errorf("%d calls for the record, %v", counts[bad], counts)
			}
			if r.Failed != int64(len(failed)) {
				t.Errorf("%d failed", r.Failed)
			}
		})
	}
}

// A record may be dropped or become several lines.
func TestConcurrentShapes(t *testing.T) {
	t.Parallel()
	d, c := callsJob(t, "{\"id\":0}\n{\"id\":1,\"do\":\"drop\"}\n{\"id\":2,\"do\":\"two\"}\nnot json\n{\"id\":3}\n", 2)
	r := mustRun(t, d, c)
	if r.Succeeded != 3 || r.Dropped != 1 || r.Failed != 1 {
		t.Errorf("%+v", r)
	}
	lines := strings.Split(d.read("out.jsonl"), "\n")
	if lines[0] != `{"id":0,"answer":0}` || lines[1] != "1" || lines[2] != "2" || !strings.Contains(lines[3], "_error") || lines[4] != `{"id":3,"answer":6}` {
		t.Errorf("%q", lines)
	}
}

// A kernel asks for another attempt: as often as allowed, and no more.
func TestConcurrentRetry(t *testing.T) {
	t.Parallel()
	for times, fails := range map[int]bool{2: false, 3: false, 4: true} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			t.Parallel()
			d, c := callsJob(t, asks(20, func(i int) string {
				if i%5 == 0 {
					return fmt.Sprintf(`,"do":"retry","times":%d`, times)
				}
				return ""
			}), 4)
			c.Failures.Retries = 3
			mustRun(t, d, c)
			failed := map[int]string{}
			if fails {
				failed = map[int]string{0: "record", 5: "record", 10: "record", 15: "record"}
			}
			checkAnswers(t, d, 20, failed)
			for id, n := range countCalls(d.join("calls")) {
				want := 1
				if id%5 == 0 {
					want = min(times, 3) + 1
				}
				if n != want {
					t.Errorf("record %d: %d calls, want %d", id, n, want)
				}
			}
			if fails && !strings.Contains(d.read("out.jsonl"), "gave up after 4 attempts: busy") {
				t.Error(d.read("out.jsonl"))
			}
		})
	}
}

// Several records that kill the process: each is found, and no answered record is sent
// again.
func TestConcurrentManyPoisoned(t *testing.T) {
	t.Parallel()
	const n = 60
	failed := map[int]string{5: "crash", 6: "crash", 40: "crash"}
	d, c := callsJob(t, asks(n, func(i int) string {
		if failed[i] != "" {
			return `,"do":"exit","sleep":20`
		}
		return ""
	}), 8)
	mustRun(t, d, c)
	checkAnswers(t, d, n, failed)
	for id, n := range countCalls(d.join("calls")) {
		if limit := 24; n > limit {
			t.Errorf("record %d was sent %d times", id, n)
		}
	}
}

// A kernel that fails on everything stops the job early, whatever way it fails.
func TestConcurrentFailsOnAll(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"error", "exit"} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			d, c := callsJob(t, asks(2000, func(int) string { return fmt.Sprintf(`,"do":%q`, do) }), 8)
			_, err := run(t, c)
			wantFault(t, err, fault.Incompatible, "fails on everything")
			if n := called(d.join("calls")); n > 1000 {
				t.Errorf("%d records were sent", n)
			}
		})
	}
}

// Settings that do not combine are refused by name.
func TestConcurrentRefusals(t *testing.T) {
	t.Parallel()
	for setting, change := range map[string]func(*orchestrator.Config){
		"batch-size": func(c *orchestrator.Config) { c.Batching.Auto = true },
		"group-by":   func(c *orchestrator.Config) { c.Batching.GroupBy = "id" },
	} {
		_, c := callsJob(t, numbered(3), 2)
		change(&c)
		_, err := run(t, c)
		wantFault(t, err, fault.Usage, "concurrency 2", setting)
	}
	_, c := callsJob(t, numbered(3), 2)
	c.Kernel.Name = "test-calls" + resolve.StepSeparator + "echo"
	c.Kernel.Config = []byte(fmt.Sprintf("[%s,null]", c.Kernel.Config))
	_, err := run(t, c)
	wantFault(t, err, fault.Usage, "does not work as a step")
}

// Checkpoints cut a chunk while records are in flight: none is sent twice.
func TestConcurrentCheckpoints(t *testing.T) {
	t.Parallel()
	const n = 600
	d, c := callsJob(t, asks(n, func(i int) string { return fmt.Sprintf(`,"sleep":%d`, 5+i*31%60) }), 16)
	c.Resume.Checkpoint = 150 * time.Millisecond
	segments := 0
	c.Display.OnEvent = func(e orchestrator.Event) {
		if _, is := e.(orchestrator.ChunkDone); is {
			segments++
		}
	}
	mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	if got := len(strings.Fields(d.read("calls"))); got != n {
		t.Errorf("%d calls for %d records", got, n)
	}
	if segments < 3 {
		t.Errorf("only %d segments: this test shows nothing", segments)
	}
	if left, _ := filepath.Glob(d.join("out.jsonl.gpurun/parts/*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Several workers share the work at the end, and cut chunks at checkpoints: none sends a
// record that another has.
func TestConcurrentWorkers(t *testing.T) {
	t.Parallel()
	const n = 600
	d, c := callsJob(t, asks(n, func(i int) string { return fmt.Sprintf(`,"sleep":%d`, 5+i/200*40) }), 8)
	c.Devices.GPUs, c.Resume.Checkpoint = "cpu:3", 150*time.Millisecond
	mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	if got := len(strings.Fields(d.read("calls"))); got != n {
		t.Errorf("%d calls for %d records", got, n)
	}
}

// Records that cannot be tried for now wait and lose no attempt, no new record is sent
// meanwhile, and the user is told.
func TestConcurrentLater(t *testing.T) {
	t.Parallel()
	const n = 200
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == 20 {
			return `,"do":"later","times":9`
		}
		return `,"sleep":30` // the others in flight are answered while none can be tried
	}), 4)
	c.Failures.Retries = -1
	var notices []string
	c.Display.OnEvent = func(e orchestrator.Event) {
		if notice, is := e.(orchestrator.Notice); is && strings.HasPrefix(notice.Text, "CPU 0: ") {
			notices = append(notices, notice.Text)
		}
	}
	mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	if counts := countCalls(d.join("calls")); counts[20] != 10 {
		t.Errorf("%v", counts)
	}
	if text := strings.Join(notices, "\n"); text != "CPU 0: waiting: the server is away\nCPU 0: continuing" {
		t.Errorf("%s", text)
	}
	others, tries := map[string]bool{}, 0
	for _, id := range strings.Fields(d.read("calls")) {
		if id == "20" {
			tries++
		} else if tries > 1 && tries < 10 {
			others[id] = true
		}
	}
	if len(others) > 3 { // those that were in flight with it
		t.Errorf("sent although none could be tried: %v", others)
	}
}

// A kernel can stop the job: no record fails, and it can be resumed.
func TestConcurrentStopsTheJob(t *testing.T) {
	t.Parallel()
	const n = 100
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == 50 {
			return `,"do":"stop once"`
		}
		return ""
	}), 4)
	_, err := run(t, c)
	wantFault(t, err, fault.Stopped, "the server stays away")
	mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	again := len(strings.Fields(d.read("calls"))) - n
	if again < 1 || again > 4 {
		t.Errorf("%d records were sent again, although at most 4 had no answer", again)
	}
}
