package orchestrator_test

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins/openai/openaitest"
)

// proxyVariable makes the test binary a proxy for the server that is its value, on the port that
// is the argument. serve: starts it as a model server. When it is killed, the server behind it
// keeps counting.
const proxyVariable = "GPURUN_TEST_PROXY"

func proxy(behind, port string) {
	target, err := url.Parse(behind)
	if err != nil {
		panic(err)
	}
	panic(http.ListenAndServe("127.0.0.1:"+port, httputil.NewSingleHostReverseProxy(target)))
}

// proxyCommand returns the command that starts a proxy for s.
func proxyCommand(s *openaitest.Server) string {
	return fmt.Sprintf("%s=%s exec %s {port}", proxyVariable, strings.TrimSuffix(s.URL, "/v1"), wire.Self())
}

// Whatever is killed, no request with an answer is sent again, and the output is that of an
// undisturbed run.
func TestRequestsKilled(t *testing.T) {
	t.Parallel()
	const n, concurrency = 600, 16
	kernels := map[string]struct {
		victims []string
		job     func(*testing.T, *openaitest.Server) (jobDir, orchestrator.Config)
		check   func(*testing.T, jobDir)
	}{
		"openai": { // the kernel is in the worker's process
			[]string{"worker", "worker", "orchestrator"},
			func(t *testing.T, s *openaitest.Server) (jobDir, orchestrator.Config) {
				return requestsJob(t, s, batchRequests(n), concurrency)
			},
			func(t *testing.T, d jobDir) { checkBatch(t, d, n, nil) },
		},
		"serve": {
			[]string{"program", "kernel", "worker", "orchestrator", "all"},
			func(t *testing.T, s *openaitest.Server) (jobDir, orchestrator.Config) {
				d, c := requestsJob(t, s, batchRequests(n), concurrency)
				c.Kernel.Name = "serve:" + proxyCommand(s)
				return d, c
			},
			func(t *testing.T, d jobDir) { checkBatch(t, d, n, nil) },
		},
		"async Python": {
			[]string{"program", "kernel", "worker", "orchestrator", "all"},
			func(t *testing.T, s *openaitest.Server) (jobDir, orchestrator.Config) {
				return politeJob(t, s, n, concurrency)
			},
			func(t *testing.T, d jobDir) { checkAnswers(t, d, n, nil) },
		},
	}
	for name, kernel := range kernels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serverFor(t, openaitest.Options{Latency: openaitest.Lognormal(0.1)})
			d, c := kernel.job(t, s)
			c.Resume.Checkpoint = 250 * time.Millisecond
			mark := fmt.Sprintf("requests-killed-%s-%d", name, os.Getpid())
			again := &resent{t: t, folder: d.join("out.jsonl.gpurun"), n: n, sent: s.Attempts, mark: mark, begin: restarter(t, &c, mark, shortTemp(t))}
			job, worker, kills := again.begin(), 0, len(kernel.victims)
			for i, victim := range kernel.victims {
				if worker == 0 || !alive(worker) {
					worker = job.awaitWorkers(t, 1)[0]
				}
				awaitCount(t, d, "requests", n*(i+1)/(kills+1), s.Total)
				job = again.kill(victim, job, worker)
			}
			end := job.wait(t)
			if !end.done() {
				t.Fatalf("%s\n%s", end, d.logs())
			}
			kernel.check(t, d)
			again.check(concurrency)
			// A request may be counted and not sent: its worker was killed in between.
			if counted, total := end.report.Usage["requests"], s.Total(); counted < int64(total) || counted > int64(n+kills*concurrency) {
				t.Errorf("the report counts %d requests, the server %d", counted, total)
			}

			plain, undisturbed := kernel.job(t, s)
			mustRun(t, plain, undisturbed)
			if plain.read("out.jsonl") != d.read("out.jsonl") {
				t.Error("the output differs from that of an undisturbed run")
			}
		})
	}
}
