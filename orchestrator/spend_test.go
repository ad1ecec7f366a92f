package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// A limit holds for all workers of a job together, and in all of its runs.
func TestLimitsOfSeveralWorkers(t *testing.T) {
	t.Parallel()
	const n, workers, concurrency, tokens = 240, 3, 8, 10
	job := func() (jobDir, orchestrator.Config) {
		d, c := callsJob(t, asks(n, func(i int) string {
			if i < concurrency { // the first worker waits for others
				return fmt.Sprintf(`,"until":%d`, 2*concurrency)
			}
			return `,"sleep":5`
		}), concurrency)
		c.Devices.GPUs, c.Batching.ChunksPerGPU = fmt.Sprintf("cpu:%d", workers), 4
		c.Kernel.Config, _ = json.Marshal(map[string]any{"Calls": d.join("calls"), "Concurrency": concurrency, "Tokens": tokens})
		return d, c
	}
	sent := func(d jobDir) (total int64) {
		for _, calls := range countCalls(d.join("calls")) {
			total += int64(calls)
		}
		return total
	}
	check := func(t *testing.T, d jobDir, c orchestrator.Config) {
		t.Helper()
		mustRun(t, d, c)
		checkAnswers(t, d, n, nil)
		if sent(d) != n {
			t.Errorf("%d requests for %d records", sent(d), n)
		}
	}
	t.Run("requests", func(t *testing.T) {
		t.Parallel()
		d, c := job()
		for _, limit := range []int64{80, 160} {
			c.Resume.MaxRequests = limit
			r, err := run(t, c)
			wantFault(t, err, fault.Stopped, fmt.Sprintf("limit of %d requests: the job has used %d", limit, limit))
			if sent(d) != limit || r.Usage["requests"] != limit || r.Resume != orchestrator.ResumesAsAdvised {
				t.Errorf("%d requests were sent with a limit of %d: %v, %q", sent(d), limit, r.Usage, r.Resume)
			}
			busy := 0
			for _, worker := range r.Workers {
				if worker.Records > 0 {
					busy++
				}
			}
			if limit == 80 && busy < 2 {
				t.Errorf("%d workers computed records: %+v", busy, r.Workers)
			}
		}
		c.Resume.MaxRequests = n
		check(t, d, c)
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		const limit = 800
		d, c := job()
		c.Resume.MaxTokens = limit
		r, err := run(t, c)
		wantFault(t, err, fault.Stopped, "limit of 800 tokens")
		used := r.Usage["total_tokens"]
		if used < limit || used >= limit+workers*concurrency*tokens || used != tokens*sent(d) {
			t.Errorf("%d tokens of %d requests were used with a limit of %d", used, sent(d), limit)
		}
		c.Resume.MaxTokens = 0
		check(t, d, c)
	})
}

// The tokens per second of a job that resumes are those of the run, not of what earlier runs
// have counted.
func TestTokenRateOfARun(t *testing.T) {
	t.Parallel()
	const n, first, tokens = 40, 36, 1000
	d, c := callsJob(t, asks(n, func(int) string { return `,"sleep":20` }), 4)
	c.Kernel.Config, _ = json.Marshal(map[string]any{"Calls": d.join("calls"), "Concurrency": 4, "Tokens": tokens})
	c.Resume.MaxRequests = first
	_, err := run(t, c)
	wantFault(t, err, fault.Stopped, "limit of 36 requests")
	c.Resume.MaxRequests = 0
	r := mustRun(t, d, c)
	want := float64(n-first) * tokens / (r.Elapsed - r.Load).Seconds()
	if r.Usage["total_tokens"] != n*tokens || r.TokenRate < want*0.999 || r.TokenRate > want*1.001 {
		t.Errorf("%.0f tokens/s, want %.0f: %v in %s", r.TokenRate, want, r.Usage, r.Elapsed-r.Load)
	}
}
