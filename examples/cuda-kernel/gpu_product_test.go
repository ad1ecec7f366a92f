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
)

// The whole product on the card. The programs are built, unless $GPURUN_PROGRAM and
// $MINHASH_CUDA_PROGRAM name them.

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

// gpurun runs a job and returns its rate: records over the time from the first to the
// last of the whole command.
func gpurun(t testing.TB, kernel string, input string, records int, arguments ...string) (output []byte, rate float64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.jsonl")
	arguments = append([]string{program(t, "GPURUN_PROGRAM", "../../cmd/gpurun"), "run", "-q", "-k", kernel, input, "-o", out}, arguments...)
	if core := os.Getenv("GPURUN_TEST_CORE"); core != "" {
		arguments = append([]string{"taskset", "-c", core}, arguments...)
	}
	begin := time.Now()
	command := exec.Command(arguments[0], arguments[1:]...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", arguments, err, text)
	}
	rate = float64(records) / time.Since(begin).Seconds()
	output, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return output, rate
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

// Two workers on one card give, byte for byte, what the built-in kernel gives.
func TestGPUProduct(t *testing.T) {
	const records = 20000
	input := writeRecords(t, records)
	kernel := program(t, "MINHASH_CUDA_PROGRAM", ".")
	want, _ := gpurun(t, "minhash", input, records, "--gpus", "cpu:4")
	got, _ := gpurun(t, kernel, input, records, "--workers-per-gpu", "2")
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

// BenchmarkGPUProduct is file to file, a kilobyte of text a record, against one core
// with the built-in kernel.
func BenchmarkGPUProduct(b *testing.B) {
	kernel := program(b, "MINHASH_CUDA_PROGRAM", ".")
	few, many := 50_000, 2_000_000
	if n, err := strconv.Atoi(os.Getenv("GPURUN_BENCH_RECORDS")); err == nil {
		many = n
	}
	small, large := writeRecords(b, few), writeRecords(b, many)
	for b.Loop() {
		b.Setenv("GPURUN_TEST_CORE", "0")
		_, core := gpurun(b, "minhash", small, few, "--gpus", "cpu:1")
		b.Setenv("GPURUN_TEST_CORE", "")
		b.ReportMetric(core, "core-records/s")
		for _, workers := range []string{"1", "4", "8"} {
			_, rate := gpurun(b, kernel, large, many, "--workers-per-gpu", workers)
			b.ReportMetric(rate, workers+"w-records/s")
			b.ReportMetric(rate/core, workers+"w-×core")
		}
	}
}
