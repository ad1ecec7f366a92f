package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// Whichever process is killed, at several moments of a job of many checkpoints: the output
// is the same, and no record with an answer is sent again.
func TestConcurrentDeaths(t *testing.T) {
	t.Parallel()
	const n, concurrency, kills = 900, 16, 2
	for _, victim := range []string{"kernel", "worker", "orchestrator", "all"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			d, c := callsJob(t, asks(n, func(i int) string { return fmt.Sprintf(`,"sleep":%d`, 10+i*31%40) }), concurrency)
			c.Resume.Checkpoint = 250 * time.Millisecond
			again := killsOf(t, d, &c, n)
			job, worker := again.begin(), 0
			for i := range kills {
				if i == 0 || victim != "kernel" {
					worker = job.awaitWorkers(t, 1)[0]
				}
				awaitCalls(t, d, n*(i+1)/(kills+1))
				job = again.kill(victim, job, worker)
			}
			if end := job.wait(t); !end.done() {
				t.Fatalf("%s\n%s", end, d.logs())
			}
			checkAnswers(t, d, n, nil)
			again.check(concurrency)
		})
	}
}

// killsOf returns the check of what a job of callsJob sends again.
func killsOf(t *testing.T, d jobDir, c *orchestrator.Config, n int) *resent {
	t.Helper()
	mark := fmt.Sprintf("%s-%d", t.Name(), os.Getpid())
	return &resent{
		t: t, folder: d.join("out.jsonl.gpurun"), n: n, sent: func() map[int]int { return countCalls(d.join("calls")) },
		mark: mark, begin: restarter(t, c, mark, shortTemp(t)),
	}
}

// The same while slow records hold answers back: hundreds of them only in the log of a plain
// file, or several chunks that wait and many behind them that are done.
func TestConcurrentDeathsBehindSlowRecords(t *testing.T) {
	t.Parallel()
	const concurrency, kills = 16, 2
	files := serveFiles(t)
	inputs := map[string]struct {
		records int
		logs    int // that there are at least, at each kill
		change  func(d jobDir, c *orchestrator.Config)
	}{
		"plain":      {2600, 1, func(jobDir, *orchestrator.Config) {}},
		"compressed": {900, 5, slowInputs["compressed"]},
		"fetched": {900, 5, func(d jobDir, c *orchestrator.Config) {
			slowInputs["compressed"](d, c)
			c.Fetch = orchestrator.Fetch{Members: []orchestrator.FetchMember{{Name: "file", Field: "url"}}, AllowPrivate: true}
			c.Kernel.Config, _ = json.Marshal(map[string]any{"Calls": d.join("calls"), "Concurrency": concurrency, "Fetched": true})
		}},
	}
	for name, input := range inputs {
		for _, victim := range []string{"kernel", "worker", "orchestrator"} {
			t.Run(name+", "+victim, func(t *testing.T) {
				t.Parallel()
				n := input.records
				d, c := callsJob(t, asks(n, func(i int) string {
					ask := fmt.Sprintf(`,"url":"%s/%d"`, files.URL, i)
					if i == 50 || i == 130 || i == 300 {
						ask += fmt.Sprintf(`,"until":%d`, n)
					}
					return ask
				}), concurrency)
				c.Input.ChunkRecords, c.Resume.Checkpoint = 32, time.Second
				input.change(d, &c)
				again := killsOf(t, d, &c, n)
				job := again.begin()
				for i := range kills {
					worker := job.awaitWorkers(t, 1)[0]
					awaitCalls(t, d, n*(i+2)/(kills+2))
					if logs, _ := filepath.Glob(d.join("out.jsonl.gpurun/parts/*.early")); len(logs) < input.logs {
						t.Errorf("only %d logs: this test shows nothing", len(logs))
					}
					job = again.kill(victim, job, worker)
					if victim == "kernel" {
						break // a second time, the others would wait for the slow records
					}
				}
				if end := job.wait(t); !end.done() {
					t.Fatalf("%s\n%s", end, d.logs())
				}
				checkAnswers(t, d, n, nil)
				again.check(concurrency)
			})
		}
	}
}

// When all records that go first after a kill are slow, those that must wait for them do not:
// neither other suspects nor new records.
func TestSlowSuspects(t *testing.T) {
	t.Parallel()
	const n, concurrency = 200, 4
	d, c := callsJob(t, asks(n, func(i int) string {
		if i < 3 {
			return fmt.Sprintf(`,"until":%d`, n)
		}
		return `,"sleep":5`
	}), concurrency)
	again := killsOf(t, d, &c, n)
	job := again.begin()
	worker := job.awaitWorkers(t, 1)[0]
	awaitCalls(t, d, n/2)
	job = again.kill("kernel", job, worker)
	awaitCalls(t, d, n)
	if end := job.wait(t); !end.done() {
		t.Fatalf("%s\n%s", end, d.logs())
	}
	checkAnswers(t, d, n, nil)
	again.check(concurrency)
}

// A record that ends the process only after long is taken to be slow once: others join it, and
// are lost with it. Then it is found all the same.
func TestSlowKiller(t *testing.T) {
	t.Parallel()
	const n, concurrency, killer = 700, 4, 20
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == killer {
			return `,"do":"exit","sleep":2200`
		}
		return `,"sleep":15`
	}), concurrency)
	mustRun(t, d, c)
	checkAnswers(t, d, n, map[int]string{killer: "crash"})
	again := 0
	for id, calls := range countCalls(d.join("calls")) {
		if id == killer {
			if calls > 3 { // among the first, then with those that joined it, then alone
				t.Errorf("the process was lost %d times", calls)
			}
			continue
		}
		if again += calls - 1; calls > 4 {
			t.Errorf("record %d was sent %d times", id, calls)
		}
	}
	if again > 3*concurrency {
		t.Errorf("%d records were sent again", again)
	}
}

// checkCalls: every record was sent once, and again only if a kill cost its answer.
func checkCalls(t *testing.T, d jobDir, n, kills, concurrency int) {
	t.Helper()
	counts := countCalls(d.join("calls"))
	total := 0
	for id, calls := range counts {
		total += calls
		if calls > 1+kills {
			t.Errorf("record %d was sent %d times", id, calls)
		}
	}
	if len(counts) != n || total > n+kills*concurrency {
		t.Errorf("%d records were sent, in %d calls; with %d in flight and %d kills, at most %d are right", len(counts), total, concurrency, kills, n+kills*concurrency)
	}
	t.Logf("%d calls for %d records", total, n)
}

// awaitCalls waits until the kernel was called for this number of records.
func awaitCalls(t *testing.T, d jobDir, n int) {
	t.Helper()
	awaitCount(t, d, "calls", n, func() int { return called(d.join("calls")) })
}

// awaitCount waits until a number has reached n.
func awaitCount(t *testing.T, d jobDir, what string, n int, count func() int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); count() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d %s, waiting for %d\n%s", count(), what, n, d.logs())
		}
	}
}

// A stop commits what is answered up to the first record that is not, and keeps the answers
// behind it: the same command sends only the rest.
func TestConcurrentStop(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"drains": 20 * time.Second, "abandons": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, concurrency = 300, 16
			// The second record takes long: at the stop, hundreds behind it are answered.
			d, c := callsJob(t, asks(n, func(i int) string {
				if i == 1 {
					return `,"sleep":1500`
				}
				return `,"sleep":20`
			}), concurrency)
			c.Resume.DrainTimeout = drain
			mark := fmt.Sprintf("concurrent-stop-%s-%d", name, os.Getpid())
			job := startDriver(t, driverOf(t, c), mark, "TMPDIR="+shortTemp(t))
			job.awaitWorkers(t, 1)
			awaitCalls(t, d, n/2)
			_ = job.cmd.Process.Signal(syscall.SIGTERM)
			end := job.wait(t)
			if end.done() || end.killed {
				t.Fatalf("the job did not stop: %s", end)
			}
			awaitGone(t, mark)
			resumed := mustRun(t, d, answersKept(t, d, c, end.report))
			checkAnswers(t, d, n, nil)
			if resumed.ResumedAnswers != end.report.Answers || resumed.Computed != n-end.report.Computed {
				t.Errorf("%d records computed, then %d; %d answers logged, and %d resumed", end.report.Computed, resumed.Computed, end.report.Answers, resumed.ResumedAnswers)
			}
			if n := recordsOfWorkers(resumed); n != resumed.Computed {
				t.Errorf("the workers have computed %d records, the run %d: logged answers are no work", n, resumed.Computed)
			}
			if again := mustRun(t, d, c); again.Computed != resumed.Computed || again.Rate != resumed.Rate {
				t.Errorf("run again once finished, the job reports %d records computed instead of %d", again.Computed, resumed.Computed)
			}
			lost := 0
			if name == "abandons" {
				lost = 1
			}
			checkCalls(t, d, n, lost, concurrency)
		})
	}
}

// Answers of another kernel or prompt are not used: if a change is accepted, only committed
// results stay, and the job says how many answers it drops.
func TestAcceptChangesDropsAnswers(t *testing.T) {
	t.Parallel()
	const n, concurrency = 300, 16
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == 100 { // those before it are committed, those behind it are only logged
			return `,"do":"stop once","until":280`
		}
		return `,"sleep":20`
	}), concurrency)
	c.Resume.Checkpoint = 50 * time.Millisecond
	stopped, err := run(t, c)
	committed := int(stopped.In - stopped.Pending)
	if err == nil || stopped.Answers < 100 || committed == 0 {
		t.Fatalf("%v: %d answers are logged, %d records are committed", err, stopped.Answers, committed)
	}
	c.Kernel.Config, _ = json.Marshal(map[string]any{"Calls": d.join("calls"), "Concurrency": concurrency, "Tokens": 1})
	_, err = run(t, c)
	wantFault(t, err, fault.Conflict, "the kernel's configuration was")
	c.Resume.AcceptChanges = []string{"config"}
	notice := ""
	c.Display.OnEvent = func(event orchestrator.Event) {
		if e, is := event.(orchestrator.Notice); is && strings.Contains(e.Text, "answers") {
			notice = e.Text
		}
	}
	resumed := mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	if resumed.ResumedAnswers != 0 || resumed.Usage["total_tokens"] != int64(n-committed) {
		t.Errorf("%d answers were resumed; %d of %d records were computed with the new configuration", resumed.ResumedAnswers, resumed.Usage["total_tokens"], n-committed)
	}
	if want := fmt.Sprintf("%d answers", stopped.Answers); !strings.HasPrefix(notice, want) {
		t.Errorf("the job announces %q, want %s", notice, want)
	}
}

func recordsOfWorkers(r orchestrator.Report) (n int64) {
	for _, w := range r.Workers {
		n += w.Records
	}
	return n
}

// answersKept checks that a stopped job counts the answers that it has logged, and returns a
// configuration for the next run that checks its events too.
func answersKept(t *testing.T, d jobDir, c orchestrator.Config, stopped orchestrator.Report) orchestrator.Config {
	t.Helper()
	status, err := orchestrator.Inspect(c.Output.Path, "")
	if err != nil || status.State != orchestrator.Interrupted || status.Report.Answers != stopped.Answers {
		t.Errorf("%v; %s with %d answers, and the report of the run has %d", err, status.State, status.Report.Answers, stopped.Answers)
	}
	done := stopped.In - stopped.Pending
	if stopped.Computed != done+stopped.Answers || stopped.Computed < 100 || stopped.Rate <= 0 {
		t.Errorf("%d done, %d answers logged, %d computed (%.1f/s)", done, stopped.Answers, stopped.Computed, stopped.Rate)
	}
	if n := recordsOfWorkers(stopped); n == 0 || n > stopped.Computed {
		t.Errorf("the workers have computed %d records, the run %d", n, stopped.Computed)
	}
	told := false
	c.Display.OnEvent = func(event orchestrator.Event) {
		switch e := event.(type) {
		case orchestrator.Resuming:
			told = e.Done == done && e.Answers == stopped.Answers
		case orchestrator.Progress:
			if n := e.Job.Records + e.Answers; n < stopped.Computed || n > stopped.In {
				t.Errorf("%d records have an answer according to an event, %d when the job stopped", n, stopped.Computed)
			}
		}
	}
	t.Cleanup(func() {
		if !told && stopped.Computed > 0 {
			t.Errorf("no event says that %d records are done and %d answers are logged", done, stopped.Answers)
		}
	})
	return c
}

// Answers behind a record without one count at once: for the bar, not for the report.
func TestAnswersInProgress(t *testing.T) {
	t.Parallel()
	const n = 200
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == 0 {
			return fmt.Sprintf(`,"until":%d`, n)
		}
		return `,"sleep":20`
	}), 8)
	most, last := int64(0), int64(0)
	job := view.NewCollector(time.Now)
	c.Display.OnEvent = func(event orchestrator.Event) {
		job.Event(event)
		if e, ok := event.(orchestrator.Progress); ok {
			total := e.Job.Records + e.Answers
			if total < last || total > n || e.Ahead > e.Answers+e.Job.Records || e.Computed != total || e.Held > n || e.Held < e.Chunk.Records+e.Ahead {
				t.Errorf("%d records have an answer, after %d; %+v", total, last, e)
			}
			if v := job.View(); v.Reached() < total || v.AverageRate <= 0 {
				t.Errorf("%d records have an answer, but a view has %d and %d (%g/s)", total, v.Done.Records, v.Answers, v.AverageRate)
			}
			most, last = max(most, e.Answers), total
		}
	}
	if report := mustRun(t, d, c); report.Computed != n || report.Answers != 0 || most < n/4 {
		t.Errorf("%d computed, %d answers; %d answers counted while a record was slow", report.Computed, report.Answers, most)
	}
}

// A pause sends nothing, and a slower pace sends fewer at a time.
func TestConcurrentPause(t *testing.T) {
	t.Parallel()
	const n = 200
	d, c := callsJob(t, asks(n, func(int) string { return `,"sleep":10` }), 8)
	control := new(orchestrator.Control)
	c.Control = control
	done := make(chan error, 1)
	go func() {
		_, err := orchestrator.Run(t.Context(), c)
		done <- err
	}()
	awaitCalls(t, d, 20)
	control.Pause()
	// What was in flight ends, and nothing follows it.
	sent, before := called(d.join("calls")), -1
	for sent != before {
		time.Sleep(300 * time.Millisecond)
		sent, before = called(d.join("calls")), sent
	}
	if sent == n {
		t.Error("all records were sent during a pause")
	}
	control.Resume()
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, d.logs())
	}
	checkAnswers(t, d, n, nil)
	if total := len(strings.Fields(d.read("calls"))); total != n {
		t.Errorf("%d calls", total)
	}
}

// A record that does not give up ends the process, but the kernel answers others meanwhile: it
// is known which record is to blame. That record fails at once, and the others are sent once
// more, without suspicion.
func TestRecordThatDoesNotGiveUpIsBlamedAtOnce(t *testing.T) {
	t.Parallel()
	const n, concurrency, stubborn = 2000, 8, 20
	d, c := callsJob(t, asks(n, func(i int) string {
		if i == stubborn {
			return `,"do":"ignore"`
		}
		return `,"sleep":20`
	}), concurrency)
	c.Failures.Timeout = time.Second
	mustRun(t, d, c)
	checkAnswers(t, d, n, map[int]string{stubborn: "timeout"})
	again := 0
	for id, calls := range countCalls(d.join("calls")) {
		if again += calls - 1; id == stubborn && calls > 1 || calls > 2 {
			t.Errorf("record %d was sent %d times", id, calls)
		}
	}
	if again >= concurrency {
		t.Errorf("%d records were sent again", again)
	}
}
