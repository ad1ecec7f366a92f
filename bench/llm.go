package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/plugins/openai/openaitest"
)

// llmInFlight is how many requests are in flight in the llm benchmark.
const llmInFlight = 256

// llm compares gpurun with bare clients of a model server that have as many requests in
// flight: openai: with a Go program, an async kernel with asyncio and aiohttp. The server,
// which is in this process, measures from the first request to the last answer.
func (b *bench) llm() error {
	records, scale := b.size(20_000, 2_000), 1.0
	if b.quick {
		scale = 0.1
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return err
	}
	if output, err := exec.Command(python, "-c", "import aiohttp").CombinedOutput(); err != nil {
		return fmt.Errorf("it needs aiohttp for %s: %s", python, output)
	}
	server, err := openaitest.Start(openaitest.Options{Latency: openaitest.Lognormal(scale)})
	if err != nil {
		return err
	}
	defer server.Close()
	m := &llmRun{bench: b, server: server, python: python, records: records, times: make(map[string][]float64)}
	if m.input, err = m.makeRequests(); err != nil {
		return err
	}
	defer b.remove("llm.jsonl", "llm.out", "llm.report")
	for range b.rounds {
		if err := m.round(); err != nil {
			return err
		}
	}
	m.report()
	return nil
}

// llmRun is the benchmark while it runs.
type llmRun struct {
	*bench
	server  *openaitest.Server
	python  string
	input   string
	records int
	times   map[string][]float64 // seconds
	cpu     llmCPU
	load    float64
}

// llmCPU is CPU time in milliseconds per request, round by round: of the processes of
// openai:, and of the bare Go client.
type llmCPU struct{ worker, kernel, both, orchestrator, bare []float64 }

// makeRequests writes the records.
func (m *llmRun) makeRequests() (string, error) {
	path := filepath.Join(m.dir, "llm.jsonl")
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for i := range m.records {
		fmt.Fprintf(out, "{\"id\":%d,\"text\":\"Summarize record %d in one sentence.\"}\n", i, i)
	}
	return path, out.Flush()
}

func (m *llmRun) round() error {
	out := filepath.Join(m.dir, "llm.out")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	settings, _ := json.Marshal(bareSettings{URL: m.server.URL, Input: m.input, Output: out, InFlight: llmInFlight})
	bare := exec.Command(self)
	bare.Env = append(os.Environ(), bareVariable+"="+string(settings))
	asyncio := exec.Command(m.python, "bench/llm_bare.py", m.server.URL, m.input, out, fmt.Sprint(llmInFlight))
	report := filepath.Join(m.dir, "llm.report")
	options := fmt.Sprintf(`{"model":"m","prompt":"{text}","concurrency":%d}`, llmInFlight)
	native := exec.Command(m.gpurun, "run", "-q", "-k", "openai:"+m.server.URL, "--kernel-config", options, m.input, "-o", out, "--force", "--fresh", "--report", report)
	kernel := exec.Command(m.gpurun, "run", "-q", "-k", "bench/llm_kernel.py", "--python", m.python, "--gpus", "cpu:1",
		"--kernel-config", fmt.Sprintf(`{"url":%q}`, m.server.URL), m.input, "-o", out, "--force", "--fresh")
	for _, one := range []struct {
		name string
		cmd  *exec.Cmd
	}{{"bare Go client", bare}, {"openai:", native}, {"bare asyncio client", asyncio}, {"async kernel", kernel}} {
		kernels, err := m.measure(one.name, one.cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		all := one.cmd.ProcessState.UserTime() + one.cmd.ProcessState.SystemTime()
		switch one.cmd {
		case bare:
			m.note(&m.cpu.bare, all)
		case native:
			workers, err := workersCPU(report)
			if err != nil {
				return err
			}
			m.note(&m.cpu.worker, workers-kernels)
			m.note(&m.cpu.kernel, kernels)
			m.note(&m.cpu.both, workers)
			m.note(&m.cpu.orchestrator, all-workers)
		}
		m.remove("llm.out", "llm.out.gpurun")
	}
	return nil
}

// measure runs a client and checks that it has sent each request once. It returns the CPU
// time of its kernel processes.
func (m *llmRun) measure(name string, cmd *exec.Cmd) (kernels time.Duration, err error) {
	m.server.Reset()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	times := sampleKernels(cmd.Process.Pid)
	err = cmd.Wait()
	kernels = times.end()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, &output)
	}
	took, most := m.server.Took()
	if total := m.server.Total(); total != m.records || most > llmInFlight {
		return 0, fmt.Errorf("it sent %d requests, %d at a time", total, most)
	}
	m.times[name] = append(m.times[name], took.Seconds())
	m.load = max(m.load, loadAverage())
	return kernels, nil
}

// workersCPU returns the CPU time of the workers, with their kernels, from a report.
func workersCPU(path string) (cpu time.Duration, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var report struct {
		Workers []struct {
			CPU time.Duration `json:"cpu_ns"`
		} `json:"workers"`
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return 0, err
	}
	for _, w := range report.Workers {
		cpu += w.CPU
	}
	return cpu, nil
}

// note adds the CPU time per request of a round.
func (m *llmRun) note(to *[]float64, cpu time.Duration) {
	*to = append(*to, cpu.Seconds()*1000/float64(m.records))
}

func (m *llmRun) report() {
	share := func(of, ours string) []float64 {
		var shares []float64
		for i, bare := range m.times[of] {
			shares = append(shares, 100*bare/m.times[ours][i])
		}
		return shares
	}
	native, kernel := share("bare Go client", "openai:"), share("bare asyncio client", "async kernel")
	m.add(fmt.Sprintf("openai:, %d requests, %d in flight, of the rate of a bare Go client", m.records, llmInFlight), "%", native, ">=", 97, nil)
	m.add("… CPU time of its worker, for each request", "ms", m.cpu.worker, "<=", 0.3, nil)
	m.add("… of the worker's kernel process", "ms", m.cpu.kernel, "", 0, nil)
	m.add("… of both", "ms", m.cpu.both, "<=", 0.3, nil)
	m.add("… of the orchestrator", "ms", m.cpu.orchestrator, "", 0, nil)
	m.add("… of the bare Go client", "ms", m.cpu.bare, "", 0, nil)
	m.add("async kernel with aiohttp, the same, of the rate of a bare asyncio client", "%", kernel, ">=", 97, nil)
	for _, name := range []string{"bare Go client", "openai:", "bare asyncio client", "async kernel"} {
		m.add("… "+name, "s", m.times[name], "", 0, nil)
	}
	m.add("… load average of the machine, at most", "", []float64{m.load}, "", 0, nil)
}

// loadAverage returns the load average of the last minute, 0 if unknown.
func loadAverage() (load float64) {
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(data), &load)
	}
	return load
}
