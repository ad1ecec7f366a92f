package orchestrator_test

import (
	"encoding/json"
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

// proxyVariable makes the test binary a proxy: the value is the server behind it, and the
// argument its own port. It stands for a model server that serve: starts: it can be killed,
// and the server behind it goes on counting.
const proxyVariable = "GPURUN_TEST_PROXY"

func proxy(behind, port string) {
	target, err := url.Parse(behind)
	if err != nil {
		panic(err)
	}
	panic(http.ListenAndServe("127.0.0.1:"+port, httputil.NewSingleHostReverseProxy(target)))
}

// proxyCommand returns the command of a serve: kernel whose server asks s.
func proxyCommand(s *openaitest.Server) string {
	return fmt.Sprintf("%s=%s exec %s {port}", proxyVariable, strings.TrimSuffix(s.URL, "/v1"), wire.Self())
}

// Whatever is killed, no request with an answer is sent again, and the output is that of an
// undisturbed run.
func TestRequestsKilled(t *testing.T) {
	t.Parallel()
	const n, concurrency = 600, 16
	batchFile := func(kernel func(*openaitest.Server) string) func(*testing.T, *openaitest.Server) (jobDir, orchestrator.Config) {
		return func(t *testing.T, s *openaitest.Server) (jobDir, orchestrator.Config) {
			d, c := requestsJob(t, s, batchRequests(n), concurrency)
			c.Kernel.Name = kernel(s)
			return d, c
		}
	}
	kernels := map[string]struct {
		victims []string
		job     func(*testing.T, *openaitest.Server) (jobDir, orchestrator.Config)
		check   func(*testing.T, jobDir)
	}{
		"openai": { // the kernel is in the worker's process
			[]string{"worker", "worker", "orchestrator"},
			batchFile(func(s *openaitest.Server) string { return "openai:" + s.URL }),
			func(t *testing.T, d jobDir) { checkBatch(t, d, n, nil) },
		},
		"serve": {
			[]string{"program", "kernel", "worker", "orchestrator", "all"},
			batchFile(func(s *openaitest.Server) string { return "serve:" + proxyCommand(s) }),
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
				awaitRequests(t, s, d, n*(i+1)/(kills+1))
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

// awaitRequests waits until the server has got so many requests.
func awaitRequests(t *testing.T, s *openaitest.Server, d jobDir, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.Total() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests, waiting for %d\n%s", s.Total(), n, d.logs())
		}
	}
}

// politeJob returns a job whose async Python kernel asks a server for each record.
func politeJob(t *testing.T, s *openaitest.Server, n, concurrency int) (jobDir, orchestrator.Config) {
	t.Helper()
	needPython(t)
	d := newJobDir(t, asks(n, func(int) string { return "" }))
	d.write("kernel.py", fmt.Sprintf("concurrency = %d\n", concurrency)+politeKernel)
	c := d.config(d.join("kernel.py"))
	c.Devices.GPUs, c.Failures.Retries = "cpu:1", orchestrator.DefaultRetries
	c.Kernel.Config, _ = json.Marshal(map[string]string{"server": strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")})
	return d, c
}
