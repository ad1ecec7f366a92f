package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/httpserve"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// secretKernel is a chain with a password in each of its commands.
const secretKernel = `exec:./fetch --password="geheim" → clean.py → serve:TOKEN=geheim vllm serve {port}`

// secretJob is a registered job whose kernel has secrets, as a job and as a host serve it.
func secretJob(t *testing.T) (entry jobs.Entry, servers map[string]string) {
	t.Helper()
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	t.Setenv(lease.Variable, t.TempDir())
	registration, err := jobs.Register(jobs.Entry{Info: jobs.Info{Kernel: secretKernel, Output: filepath.Join(t.TempDir(), "out.jsonl")}})
	if err != nil {
		t.Fatal(err)
	}
	control, folder := &controlled{}, t.TempDir()
	failure := `{"record":1,"kind":"record","message":"bad \"kernel\": \"x\"","step":"exec:./fetch --password=\"geheim\""}` + "\n"
	if err := os.WriteFile(view.FailuresPath(folder), []byte(failure), 0o600); err != nil {
		t.Fatal(err)
	}
	control.job = NewJob(registration.Entry, control, view.NewCollector(time.Now))
	plan := planned()
	plan.Plan.Kernel, plan.Folder = secretKernel, folder
	control.job.follow(plan)
	t.Cleanup(registration.Serve(NewSocket(control.job), control.job.view.View))
	t.Cleanup(control.job.Close)
	t.Cleanup(func() { control.job.follow(orchestrator.Finished{}) })
	host := NewHost(lease.DefaultConfig())
	host.look(t.Context())
	servers = make(map[string]string)
	for name, backend := range map[string]Backend{"job": control.job, "host": host} {
		source := control.job.Metrics()
		if name == "host" {
			source = host.Metrics()
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(httpserve.Serve(l, 64, New(Access{Token: token}, backend, metrics.New(source))))
		servers[name] = "http://" + l.Addr().String()
	}
	return registration.Entry, servers
}

// readAll returns a response, or the first events of a stream.
func readAll(t *testing.T, url, token string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Gpurun-Brief", "") // no request can ask for more
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", url, response.Status)
	}
	if response.Header.Get("Content-Type") != "text/event-stream" {
		data, _ := io.ReadAll(response.Body)
		return string(data)
	}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text := lines.Text(); strings.HasPrefix(text, "data:") {
			return text
		}
	}
	return ""
}

// A reader without the token gets the names of programs, and no argument of a command, from no
// path. One with the token gets whole commands.
func TestCommandLinesNeedTheToken(t *testing.T) {
	entry, servers := secretJob(t)
	names := 0
	for server, url := range servers {
		for _, path := range []string{
			"/api/jobs", "/api/jobs/" + entry.ID, "/api/jobs/" + entry.ID + "/history", "/api/jobs/" + entry.ID + "/failures",
			"/api/jobs/" + entry.ID + "/events", "/api/system/status", "/api/gpu/status/all", "/metrics", "/",
		} {
			public, all := readAll(t, url+path, ""), readAll(t, url+path, token)
			if strings.Contains(public, "geheim") {
				t.Errorf("%s %s shows everyone %s", server, path, public)
			}
			if strings.Contains(public, "exec:./fetch …") {
				names++
			}
			switch path {
			case "/api/jobs", "/api/jobs/" + entry.ID, "/api/jobs/" + entry.ID + "/events":
				if !strings.Contains(all, "geheim") || !strings.Contains(public, `exec:./fetch … → clean.py → serve:…"`) {
					t.Errorf("%s %s: with the token %s, without %s", server, path, all, public)
				}
			case "/api/jobs/" + entry.ID + "/failures":
				if !strings.Contains(all, "geheim") || !strings.Contains(public, `"message":"bad \"kernel\": \"x\""`) {
					t.Errorf("%s %s: with the token %s, without %s", server, path, all, public)
				}
			}
		}
	}
	if names < 8 {
		t.Errorf("%d responses name the kernel: the others show nothing", names)
	}
}

// What follows the program's name, and what only a shell can tell, is left out.
func TestBriefNames(t *testing.T) {
	for name, want := range map[string]string{
		"embed.py": "embed.py", "embed.py:Model": "embed.py:Model", "./kernel": "./kernel", "openai:http://127.0.0.1:8000/v1": "openai:http://127.0.0.1:8000/v1",
		"exec:jq": "exec:jq", "exec:jq -c .": "exec:jq …", "exec:KEY=x jq": "exec:…", "exec:'a b' c": "exec:…", "exec:": "exec:…",
		"serve:vllm serve m --api-key x": "serve:vllm …", "a.py → exec:b c": "a.py → exec:b …", "exec:cat|x": "exec:…",
	} {
		if got := briefName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
