//go:build gpu

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
)

// These tests run the whole product on the card. They build the programs, unless
// $GPURUN_PROGRAM and $MINHASH_CUDA_PROGRAM name them.

func program(t testing.TB, variable, source string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", source, err, out)
	}
	return path
}

// gpurun runs a job and returns its output and how long the whole command took.
func gpurun(t testing.TB, prefix []string, kernel, input string, arguments ...string) (output string, took time.Duration) {
	t.Helper()
	output = filepath.Join(t.TempDir(), "out.jsonl")
	words := append(prefix, program(t, "GPURUN_PROGRAM", "../../cmd/gpurun"), "run", "-q", "-k", kernel, input, "-o", output)
	words = append(words, arguments...)
	command := exec.Command(words[0], words[1:]...)
	begin := time.Now()
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", words, err, text)
	}
	took = time.Since(begin)
	cpu := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	t.Logf("%s %v: %.1f s, %.1f CPU-s", filepath.Base(kernel), arguments, took.Seconds(), cpu.Seconds())
	return output, took
}

func writeRecords(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	records := kilobytes(min(n, 1<<16))
	for i := range n {
		if _, err := file.Write(append(records[i%len(records)], '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, kernel, input string, arguments ...string) []byte {
	t.Helper()
	path, _ := gpurun(t, nil, kernel, input, arguments...)
	output, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// Two workers on one card produce the same bytes as the built-in kernel.
func TestGPUProduct(t *testing.T) {
	const records = 20000
	input := writeRecords(t, records)
	kernel := program(t, "MINHASH_CUDA_PROGRAM", ".")
	want, got := read(t, "minhash", input, "--gpus", "cpu:4"), read(t, kernel, input, "--workers-per-gpu", "2")
	if !bytes.Equal(got, want) {
		t.Error("the outputs differ")
	}
	if lines := bytes.Count(got, []byte("\n")); lines != records {
		t.Errorf("%d lines", lines)
	}
	var record struct{ Minhash []int64 }
	if err := json.Unmarshal(got[:bytes.IndexByte(got, '\n')], &record); err != nil || len(record.Minhash) != 128 {
		t.Errorf("the first line: %v, %d values", err, len(record.Minhash))
	}
}

// A job killed in the middle leaves no memory allocated on the card, and resumes.
func TestGPUProductKilled(t *testing.T) {
	const records = 400000
	input := writeRecords(t, records)
	kernel := program(t, "MINHASH_CUDA_PROGRAM", ".")
	want := read(t, "minhash", input)
	driver, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	device, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	before := freeMemory(t, device)

	out := filepath.Join(t.TempDir(), "out.jsonl")
	words := []string{"run", "-k", kernel, input, "-o", out, "--workers-per-gpu", "2"}
	job := exec.Command(program(t, "GPURUN_PROGRAM", "../../cmd/gpurun"), words...)
	var output bytes.Buffer
	job.Stdout, job.Stderr = &output, &output
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- job.Wait() }()
	for partial(out) == 0 {
		select {
		case err := <-ended:
			t.Fatalf("the job ended before it was killed: %v\n%s", err, output.String())
		case <-time.After(time.Millisecond):
		}
	}
	_ = job.Process.Kill()
	<-ended
	waitForMemory(t, device, before)
	text, err := exec.Command(job.Path, words...).CombinedOutput()
	if err != nil || !bytes.Contains(text, []byte("resuming")) {
		t.Fatalf("%v\n%s", err, text)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the output differs: %v", err)
	}
}

// partial returns the size of a job's partial output.
func partial(out string) int64 {
	info, err := os.Stat(filepath.Join(out+".gpurun", "output.partial"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// BenchmarkGPUProduct runs from file to file with a kilobyte of text per record, compared
// with the built-in kernel on one core.
func BenchmarkGPUProduct(b *testing.B) {
	kernel := program(b, "MINHASH_CUDA_PROGRAM", ".")
	few, many := 50_000, 2_000_000
	if n, err := strconv.Atoi(os.Getenv("GPURUN_BENCH_RECORDS")); err == nil {
		many = n
	}
	small, large := writeRecords(b, few), writeRecords(b, many)
	for b.Loop() {
		out, took := gpurun(b, []string{"taskset", "-c", "0"}, "minhash", small, "--gpus", "cpu:1")
		_ = os.Remove(out)
		core := float64(few) / took.Seconds()
		b.ReportMetric(core, "core-records/s")
		for _, workers := range []string{"1", "2", "4"} {
			out, took := gpurun(b, nil, kernel, large, "--workers-per-gpu", workers)
			_ = os.Remove(out) // it may be on a memory file system
			rate := float64(many) / took.Seconds()
			b.ReportMetric(rate, workers+"w-records/s")
			b.ReportMetric(rate/core, workers+"w-×core")
		}
	}
}
