package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// prometheus starts a real Prometheus that scrapes target, and returns its address.
func prometheus(t *testing.T, h *sharedHost, target string) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: prometheus is not installed: no real Prometheus scrapes the metrics (make deploy-test installs it)")
	}
	rules, err := os.ReadFile("../../deploy/prometheus/gpurun.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"+
		"scrape_configs:\n  - {job_name: gpurun, static_configs: [{targets: [%q]}]}\n", target)
	for name, content := range map[string]string{"rules.yml": string(rules), "prometheus.yml": config} {
		if err := os.WriteFile(h.join(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	cmd := exec.Command(program, "--config.file", h.join("prometheus.yml"), "--storage.tsdb.path", h.join("tsdb"), "--web.listen-address", address)
	log, err := os.Create(h.join("prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return address
}

// query asks Prometheus and returns the number of series in the answer.
func query(t *testing.T, address, expression string) int {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return 0 // it is still starting
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusServiceUnavailable {
		return 0
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %s", expression, body)
	}
	return len(answer.Data.Result)
}

// lintMetrics lets promtool check the metrics. It dislikes one label, which is NVIDIA's, and
// the unit of memory, which the requirements name.
func lintMetrics(t *testing.T, address string) {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = response.Body
	out, _ := cmd.CombinedOutput() // it fails because of those
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if !strings.HasSuffix(line, " label names should be written in 'snake_case' not 'camelCase'") &&
			!strings.HasSuffix(line, "_mb metric names should not contain abbreviated units") {
			t.Errorf("promtool: %s", line)
		}
	}
}

// dashboardQueries returns every query of the Grafana dashboard, for all hosts.
func dashboardQueries(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/gpurun.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			list = append(list, strings.ReplaceAll(target.Expr, "$instance", ".*"))
		}
	}
	return list
}

// TestPrometheus: a real Prometheus scrapes gpurun serve while a job runs, every query of
// the dashboard returns data, and the alert rules load.
func TestPrometheus(t *testing.T) {
	h := newHost(t, 2)
	s := serve(t, h)
	address := prometheus(t, h, strings.TrimPrefix(s.url, "http://"))
	failing := `exec:while read -r line; do sleep 0.02; case "$line" in *7*) echo '{"_error":"seven"}';; *) echo "$line";; esac; done`
	var input strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&input, "{\"a\":%d}\n", i)
	}
	if err := os.WriteFile(h.join("in.jsonl"), []byte(input.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h.start("scraped", failing, "--gpu-memory", "1G", "--batch-size", "4")
	defer s.stop()
	s.ask("POST", "/api/gpu/memory/allocate", `{"allocation_id":"a","required_mb":100}`)
	await(t, "Prometheus to scrape", func() bool { return query(t, address, "up == 1") == 1 })
	await(t, "the job to appear", func() bool { return query(t, address, `gpurun_records_total{verdict="succeeded"} > 0`) > 0 })
	s.ask("POST", "/api/gpu/memory/allocate", `{"allocation_id":"b","required_mb":100}`)
	s.ask("POST", "/api/gpu/memory/allocate", `{"allocation_id":"b","required_mb":99999999}`)
	lintMetrics(t, s.url+"/metrics")
	for _, expression := range dashboardQueries(t) {
		await(t, "data of "+expression, func() bool { return query(t, address, expression) > 0 })
	}
	if n := query(t, address, `count(ALERTS) or vector(1)`); n == 0 {
		t.Error("Prometheus does not evaluate")
	}
}
