package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins/openai/openaitest"
)

// rateLimit returns the trouble of a server that serves so many requests in each span of
// time, and refuses all others until the next one begins.
func rateLimit(most int, span time.Duration) func(number, attempt int) openaitest.Trouble {
	var mu sync.Mutex
	var begun time.Time
	served := 0
	return func(int, int) openaitest.Trouble {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(begun) >= span {
			begun, served = time.Now(), 0
		}
		if served++; served <= most {
			return openaitest.Trouble{}
		}
		return openaitest.Trouble{Status: 429, RetryAfter: fmt.Sprint(span.Seconds())}
	}
}

// politeKernel asks a server for each record, and for another attempt when the server refuses
// it, as anyone would write it.
const politeKernel = `
import asyncio, json, gpurun

async def setup(ctx):
    global host, port
    host, port = ctx.config["server"].split(":")

async def process(record):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "record %d" % record["id"]}]}).encode()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *headers = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in headers)
    if " 429 " in status:
        raise gpurun.Retry(after=float(headers["Retry-After"]))
    return {"answer": 2 * record["id"]}
`

// politeJob returns a job whose async Python kernel asks a server for each record.
func politeJob(t *testing.T, s *openaitest.Server, n, concurrency int) (jobDir, orchestrator.Config) {
	t.Helper()
	needPython(t)
	d := newJobDir(t, asks(n, func(int) string { return "" }))
	d.write("kernel.py", fmt.Sprintf("concurrency = %d\n", concurrency)+politeKernel)
	c := d.config(d.join("kernel.py"))
	c.Devices.GPUs, c.Failures.Retries = "cpu:1", 3
	c.Kernel.Config, _ = json.Marshal(map[string]string{"server": strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")})
	return d, c
}

// A kernel that asks for another attempt with a wait makes the worker hold back: a server
// with a rate limit answers every record, with the default number of attempts, and refuses
// few requests.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	const n, concurrency, most, span = 240, 48, 40, 200 * time.Millisecond
	s := serverFor(t, openaitest.Options{Trouble: rateLimit(most, span)})
	d, c := politeJob(t, s, n, concurrency)
	mustRun(t, d, c)
	checkAnswers(t, d, n, nil)
	// At most one concurrency's worth at first, then less than half of what is served.
	if s.Total() > n+concurrency+n/2 {
		t.Errorf("%d requests for %d records", s.Total(), n)
	}
	t.Logf("%d requests for %d records", s.Total(), n)
}

// The same holds for openai:, whether the server says how long to wait or not.
func TestRateLimitOfRequests(t *testing.T) {
	t.Parallel()
	const n, concurrency, most, span = 240, 48, 40, 200 * time.Millisecond
	for _, after := range []string{"", fmt.Sprint(span.Seconds())} {
		t.Run("Retry-After "+after, func(t *testing.T) {
			t.Parallel()
			limited := rateLimit(most, span)
			s := serverFor(t, openaitest.Options{Trouble: func(number, attempt int) openaitest.Trouble {
				trouble := limited(number, attempt)
				if trouble.Status != 0 {
					trouble.RetryAfter = after
				}
				return trouble
			}})
			d, c := requestsJob(t, s, batchRequests(n), concurrency)
			report := mustRun(t, d, c)
			if report.Succeeded != n || s.Total() > n+concurrency+n/2 {
				t.Errorf("%d succeeded after %d requests for %d records", report.Succeeded, s.Total(), n)
			}
		})
	}
}

// While a server asks for a long pause, the worker is shown as held back, not as computing.
func TestPauseOfAServerIsShown(t *testing.T) {
	t.Parallel()
	s := serverFor(t, openaitest.Options{Trouble: func(number, _ int) openaitest.Trouble {
		if number == 5 {
			return openaitest.Trouble{Status: 429, RetryAfter: "1000000"}
		}
		return openaitest.Trouble{}
	}})
	_, c := requestsJob(t, s, batchRequests(100), 4)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	job, shown := view.NewCollector(time.Now), false
	c.Display.OnEvent = func(event orchestrator.Event) {
		job.Event(event)
		if e, ok := event.(orchestrator.Progress); ok && e.Awaits == orchestrator.AwaitsServer {
			shown = shown || job.View().AllIn(view.PhaseHeld)
			cancel()
		}
	}
	_, err := runContext(t, ctx, c)
	if !shown || fault.KindOf(err) != fault.Canceled {
		t.Errorf("shown: %v, %v", shown, err)
	}
}
