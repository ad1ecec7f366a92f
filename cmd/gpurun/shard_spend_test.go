package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// spendServer answers every request and counts them. Those that hold accepts are not answered
// until the client is gone.
func spendServer(t *testing.T, hold func(n int64) bool) (url string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if r.Method == http.MethodPost && hold(asked.Add(1)) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"yes"}}],"usage":{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10}}`)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", asked
}

// asking returns a process that sends the records of a shard to a server.
func (d sharedFolder) asking(url, shard string, more ...string) (*exec.Cmd, said) {
	args := []string{"run", "--shard", shard, "-k", "openai:" + url, "--kernel-config", `{"model":"m","prompt":"record {id}.","output":"answer","concurrency":2}`, "in.jsonl", "-o", "out.jsonl"}
	return d.command(nil, append(args, more...)...)
}

// TestSpendLimitsHoldForAllShards: the limits hold for the whole run, with all of its shards and
// attempts. Raising one resumes the run, and the report counts everything.
func TestSpendLimitsHoldForAllShards(t *testing.T) {
	for flag, each := range map[string]int64{"--max-requests": 1, "--max-tokens-total": 10} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			d := newSharedFolder(t, 20)
			url, asked := spendServer(t, func(int64) bool { return false })
			for range 2 {
				for _, shard := range []string{"0/4", "1/4", "2/4", "3/4"} {
					cmd, stderr := d.asking(url, shard, "--chunks-per-gpu", "1", flag, fmt.Sprint(3*each))
					start(t, cmd)
					ends(t, cmd, stderr, 7)
					if want := fmt.Sprintf("limit of %d", 3*each); !strings.Contains(stderr.String(), want) || !strings.Contains(stderr.String(), "share") {
						t.Errorf("shard %s does not say %q:\n%s", shard, want, stderr)
					}
				}
			}
			// With two requests in flight, one more answer per shard may count.
			if n := asked.Load(); n < 3 || flag == "--max-requests" && n > 3 || n > 8 {
				t.Errorf("%d requests", n)
			}
			cmd, stderr := d.asking(url, "0/4", "--merge", flag, fmt.Sprint(20*each))
			start(t, cmd)
			ends(t, cmd, stderr, 0)
			if n := asked.Load(); n != 20 {
				t.Errorf("%d requests for 20 records", n)
			}
			data, err := os.ReadFile(d.join("out.jsonl.gpurun/report.json"))
			var report struct{ Usage map[string]int64 }
			if err != nil || json.Unmarshal(data, &report) != nil || report.Usage["requests"] != 20 || report.Usage["total_tokens"] != 200 {
				t.Errorf("the report counts %v, %v", report.Usage, err)
			}
		})
	}
}

// TestSpendOfKilledShardIsCounted: what a killed attempt has sent counts for the next one, also
// if nothing of it could be resumed.
func TestSpendOfKilledShardIsCounted(t *testing.T) {
	d := newSharedFolder(t, 20)
	url, asked := spendServer(t, func(n int64) bool { return n <= 2 })
	killed, _ := d.asking(url, "0/1", "--max-requests", "6")
	start(t, killed)
	waitFor(t, "requests in flight", func() bool { return asked.Load() == 2 })
	_ = killed.Process.Kill()
	_ = killed.Wait()
	cmd, stderr := d.asking(url, "0/1", "--max-requests", "6")
	start(t, cmd)
	ends(t, cmd, stderr, 7)
	if n := asked.Load(); n != 6 {
		t.Errorf("%d requests, with a limit of 6:\n%s", n, stderr)
	}
}

// TestSpendLimitOfNextShard: a worker that goes on to another shard gets that one's share, which
// may be larger.
func TestSpendLimitOfNextShard(t *testing.T) {
	d := newSharedFolder(t, 17) // the last of four shards has two records
	url, asked := spendServer(t, func(int64) bool { return false })
	cmd, stderr := d.asking(url, "3/4", "--merge", "--max-requests", "17")
	start(t, cmd)
	ends(t, cmd, stderr, 0)
	if n := asked.Load(); n != 17 {
		t.Errorf("%d requests for 17 records", n)
	}
}
