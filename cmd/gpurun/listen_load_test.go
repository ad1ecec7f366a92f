package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// cpuTime is how long a process has computed.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestListenLoad measures what 200 clients, each with an event stream and a request a
// second, cost the process that runs the job: at most 5 % of a core, directly or through
// gpurun serve.
func TestListenLoad(t *testing.T) {
	if os.Getenv("GPURUN_TEST_ALL") == "" || raceEnabled {
		t.Skip("measures CPU time for half a minute: make test-all runs it")
	}
	const clients, seconds = 200, 10
	h := newHost(t, 0)
	h.start("busy", `exec:while read -r line; do sleep 0.3; echo "$line"; done`, "--gpus", "cpu:8", "--listen", "127.0.0.1:0")
	url := ""
	await(t, "the address", func() bool {
		_, url, _ = strings.Cut(h.said("busy"), "watch this job at ")
		url, _, _ = strings.Cut(url, "/#")
		return strings.HasPrefix(url, "http")
	})
	pid := h.runs["busy"].Process.Pid
	id := ""
	await(t, "the job to run", func() bool {
		for _, job := range h.overview().Jobs {
			id = job.Job.ID
		}
		return h.phase("busy") == "running"
	})
	measure := func(during func(ctx context.Context)) time.Duration {
		ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
		defer cancel()
		before := cpuTime(t, pid)
		during(ctx)
		<-ctx.Done()
		return cpuTime(t, pid) - before
	}
	alone := measure(func(context.Context) {})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	answers, bytes := 0, int64(0)
	get := func(ctx context.Context, url string) {
		r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
		response, err := client.Do(r)
		if err != nil {
			return
		}
		defer response.Body.Close()
		n, _ := io.Copy(io.Discard, response.Body)
		mu.Lock()
		defer mu.Unlock()
		answers, bytes = answers+1, bytes+n
	}
	s := serve(t, h)
	defer s.stop()
	for name, url := range map[string]string{"directly": url, "through gpurun serve": s.url} {
		answers, bytes = 0, 0
		watched := measure(func(ctx context.Context) {
			var all sync.WaitGroup
			for range clients {
				all.Go(func() { get(ctx, url+"/api/jobs/"+id+"/events") })
				all.Go(func() {
					for ctx.Err() == nil {
						get(ctx, url+"/api/jobs/"+id)
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
						}
					}
				})
			}
			all.Wait()
		})
		share := 100 * (watched - alone).Seconds() / seconds
		t.Logf("%s: the job alone %s, with %d clients %s: %.1f %% of a core; %d answers, %d bytes", name, alone, clients, watched, share, answers, bytes)
		if answers < clients*seconds/2 {
			t.Errorf("%s: only %d answers", name, answers)
		}
		if share > 5 {
			t.Errorf("%s: %d clients cost %.1f %% of a core", name, clients, share)
		}
	}
}
