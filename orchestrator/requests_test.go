package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins/openai/openaitest"
)

// serverFor starts a model server for a test.
func serverFor(t *testing.T, options openaitest.Options) *openaitest.Server {
	t.Helper()
	s, err := openaitest.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// batchRequests returns n lines of a batch file.
func batchRequests(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"r-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"Summarize record %d."}]}}`+"\n", i, i)
	}
	return b.String()
}

// requestsJob returns a job that sends the lines of a batch file to a server.
func requestsJob(t *testing.T, s *openaitest.Server, input string, concurrency int) (jobDir, orchestrator.Config) {
	t.Helper()
	d := newJobDir(t, input)
	c := d.config("openai:" + s.URL)
	c.Devices.GPUs = "cpu:1"
	c.Format, c.Failures.Retries = orchestrator.OpenAIBatch, 3
	c.Kernel.Config, _ = json.Marshal(map[string]any{"concurrency": concurrency, "timeout": 5})
	return d, c
}

// batchOutput is a line of the output.
type batchOutput struct {
	ID       string
	CustomID *string `json:"custom_id"`
	Response *struct {
		Status int             `json:"status_code"`
		ID     string          `json:"request_id"`
		Body   json.RawMessage `json:"body"`
	}
	Error *struct{ Code, Message string }
}

// checkBatch checks that every request has its answer, or the error that it should have.
func checkBatch(t *testing.T, d jobDir, n int, failed map[int]string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(d.read("out.jsonl"), "\n"), "\n")
	if len(lines) != n {
		t.Fatalf("%d lines, want %d\n%s", len(lines), n, d.logs())
	}
	for i, line := range lines {
		var got batchOutput
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.CustomID == nil || *got.CustomID != fmt.Sprint("r-", i) || got.ID != fmt.Sprintf("batch_req_%012d", i) {
			t.Fatalf("line %d is %s (%v)", i, line, err)
		}
		message, fails := failed[i]
		switch {
		case fails && (got.Response != nil || got.Error == nil || !strings.Contains(got.Error.Message, message)):
			t.Errorf("request %d should fail with %q, not: %s", i, message, line)
		case !fails && (got.Error != nil || got.Response == nil || got.Response.Status != 200 || !strings.Contains(string(got.Response.Body), fmt.Sprintf("The answer to record %d.", i))):
			t.Errorf("request %d: %s", i, line)
		}
	}
}

// The server counts what it is asked: every request once, and again only where its trouble
// asks for another attempt.
func TestRequestsSent(t *testing.T) {
	t.Parallel()
	const n, hangs, hopeless, refused = 300, 17, 42, 99
	trouble := func(number, attempt int) openaitest.Trouble {
		switch {
		case number == hopeless:
			return openaitest.Trouble{Status: 503, RetryAfter: "0.05"}
		case number == refused:
			return openaitest.Trouble{Status: 400}
		case attempt > 1:
		case number == hangs:
			return openaitest.Trouble{Hang: true}
		case number%20 == 3:
			return openaitest.Trouble{Status: 429, RetryAfter: "0.05"}
		case number%20 == 5:
			return openaitest.Trouble{Status: 500, RetryAfter: "0.01"}
		case number%20 == 7:
			return openaitest.Trouble{Close: true}
		}
		return openaitest.Trouble{}
	}
	s := serverFor(t, openaitest.Options{Latency: openaitest.Lognormal(0.05), Trouble: trouble})
	d, c := requestsJob(t, s, batchRequests(n), 32)
	c.Kernel.Config = []byte(`{"concurrency":32,"timeout":2}`)
	r, err := run(t, c)
	if err != nil {
		t.Fatalf("%v\n%s", err, d.logs())
	}
	failed := map[int]string{hopeless: "503", refused: "400"}
	checkBatch(t, d, n, failed)
	total := 0
	for number, attempts := range s.Attempts() {
		want := 1
		switch {
		case number == hopeless:
			want = 4
		case number != refused && trouble(number, 1) != openaitest.Trouble{}:
			want = 2
		}
		if attempts != want {
			t.Errorf("request %d was sent %d times, want %d", number, attempts, want)
		}
		total += attempts
	}
	if r.Failed != 2 || r.Usage["requests"] != int64(total) || r.Usage["total_tokens"] == 0 {
		t.Errorf("%d failed, %v; %d requests were sent", r.Failed, r.Usage, total)
	}
	// The failed requests are kept as they were.
	info, err := os.Stat(d.join("out.jsonl.gpurun/failed.jsonl"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A limit stops the job, which resumes with a higher one. The count continues: the limit is
// that of the job.
func TestRequestLimit(t *testing.T) {
	t.Parallel()
	const n, concurrency = 100, 8
	s := serverFor(t, openaitest.Options{Latency: openaitest.Lognormal(0.05)})
	d, c := requestsJob(t, s, batchRequests(n), concurrency)
	for _, limit := range []int64{30, 30, 70} {
		c.Resume.MaxRequests = limit
		r, err := run(t, c)
		wantFault(t, err, fault.Stopped, fmt.Sprintf("limit of %d requests", limit), "max-requests")
		if got := s.Total(); int64(got) != limit || r.Usage["requests"] != limit || r.Pending != n-limit {
			t.Fatalf("%d requests were sent, the report counts %d and %d are pending", got, r.Usage["requests"], r.Pending)
		}
		if r.Resume != orchestrator.ResumesAsAdvised {
			t.Errorf("it resumes: %q", r.Resume)
		}
	}
	c.Resume.MaxRequests = n // exactly enough
	r := mustRun(t, d, c)
	checkBatch(t, d, n, nil)
	if s.Total() != n || r.Usage["requests"] != n {
		t.Errorf("%d requests, %v", s.Total(), r.Usage)
	}
}

// Answers that are under way when the limit of tokens is reached are taken and counted.
func TestTokenLimit(t *testing.T) {
	t.Parallel()
	const n, concurrency, limit = 100, 8, 1000
	s := serverFor(t, openaitest.Options{Latency: openaitest.Lognormal(0.05)})
	d, c := requestsJob(t, s, batchRequests(n), concurrency)
	c.Resume.MaxTokens = limit
	r, err := run(t, c)
	wantFault(t, err, fault.Stopped, "limit of 1000 tokens", "max-tokens-total")
	used, sent := r.Usage["total_tokens"], s.Total()
	if used < limit || used > limit+concurrency*60 || sent != int(r.Usage["requests"]) || r.Pending != int64(n-sent) {
		t.Errorf("%v, %d sent, %d pending", r.Usage, sent, r.Pending)
	}
	c.Resume.MaxTokens = 0
	if r = mustRun(t, d, c); s.Total() != n || r.Usage["prompt_tokens"] == 0 || r.TokenRate == 0 {
		t.Errorf("%d requests, %v", s.Total(), r.Usage)
	}
	checkBatch(t, d, n, nil)
}

// A limit that cannot hold is refused.
func TestLimitsThatCannotHold(t *testing.T) {
	t.Parallel()
	s := serverFor(t, openaitest.Options{NoUsage: true})
	_, c := requestsJob(t, s, batchRequests(100), 8)
	c.Resume.MaxTokens = 1000
	_, err := run(t, c)
	wantFault(t, err, fault.Incompatible, "report none", "max-tokens-total")
	d := newJobDir(t, numbered(3))
	c = d.config("echo")
	c.Resume.MaxRequests = 1
	_, err = run(t, c)
	wantFault(t, err, fault.Usage, "computes batches", "max-requests")
}

// TestSlowRequest: a request may take as long as the kernel's own limit allows, however fast
// the others were. Another attempt would cost the same again, and be as slow.
func TestSlowRequest(t *testing.T) {
	t.Parallel()
	const n, slow = 60, 55
	s := serverFor(t, openaitest.Options{Latency: func(number int) time.Duration {
		if number == slow {
			return 2 * time.Second
		}
		return time.Millisecond
	}})
	d, c := requestsJob(t, s, batchRequests(n), 4)
	c.Kernel.Config = []byte(`{"concurrency":4,"timeout":60}`)
	if _, err := run(t, orchestrator.WithLeastTimeout(c, 10*time.Millisecond)); err != nil {
		t.Fatalf("%v\n%s", err, d.logs())
	}
	checkBatch(t, d, n, nil)
	if sent := s.Attempts()[slow]; sent != 1 {
		t.Errorf("the slow request was sent %d times", sent)
	}
}

// TestRecordTimeLimit: a limit that the user sets holds, and the record's message names what
// ended the request.
func TestRecordTimeLimit(t *testing.T) {
	t.Parallel()
	const n, hangs = 8, 5
	s := serverFor(t, openaitest.Options{Trouble: func(number, _ int) openaitest.Trouble {
		return openaitest.Trouble{Hang: number == hangs}
	}})
	d, c := requestsJob(t, s, batchRequests(n), 4)
	c.Failures.Timeout, c.Failures.Retries = 300*time.Millisecond, 1
	if _, err := run(t, c); err != nil {
		t.Fatalf("%v\n%s", err, d.logs())
	}
	checkBatch(t, d, n, map[int]string{hangs: "gave up after 2 attempts: the server did not answer within the time limit of a record"})
}

// A job that has sent requests waits for its server when it resumes, as in the middle of a run,
// and stops resumable. One that has sent none stops with the error of a wrong address.
func TestResumeWaitsForTheServer(t *testing.T) {
	t.Parallel()
	s, err := openaitest.Start(openaitest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, c := requestsJob(t, s, batchRequests(40), 4)
	c.Kernel.Config = []byte(`{"concurrency":4,"max_outage":0.2}`)
	c.Resume.MaxRequests = 10
	if _, err := run(t, c); fault.KindOf(err) != fault.Stopped {
		t.Fatal(err)
	}
	c.Resume.MaxRequests = 0
	s.Close()
	if _, err := run(t, c); fault.KindOf(err) != fault.Stopped || !strings.Contains(err.Error(), "could not be reached for 200ms") {
		t.Errorf("resumed: %v", err)
	}
	c.Resume.Fresh = true
	if _, err := run(t, c); fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("fresh: %v", err)
	}
}
