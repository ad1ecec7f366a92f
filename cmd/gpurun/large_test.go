package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gpurun runs the command in its own process.
func gpurun(t *testing.T, dir string, args ...string) (exit int, stderr string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GPURUN_TEST_COMMAND=1")
	var out bytes.Buffer
	cmd.Stderr = &out
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String()
}

func create(t *testing.T, path string, write func(w *bufio.Writer)) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(file, 1<<20)
	write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVeryLongLine: a line of 200 MB is a failed record that is kept whole, and its
// neighbors succeed.
func TestVeryLongLine(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 600 MB")
	}
	dir := t.TempDir()
	const size = 200 << 20
	create(t, filepath.Join(dir, "in.jsonl"), func(w *bufio.Writer) {
		fmt.Fprintln(w, `{"a":1}`)
		w.WriteString(`{"b":"`)
		piece := strings.Repeat("x", 1<<20)
		for range size >> 20 {
			w.WriteString(piece)
		}
		w.WriteString("\"}\n")
		fmt.Fprintln(w, `{"c":3}`)
	})
	exit, stderr := gpurun(t, dir, "run", "-k", "echo", "in.jsonl", "-o", "out.jsonl")
	if exit != 3 || !strings.Contains(stderr, "3 in = 2 succeeded + 1 failed") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
	info, err := os.Stat(filepath.Join(dir, "out.jsonl"))
	if err != nil || info.Size() < size {
		t.Fatalf("output: %v, %v", info, err)
	}
	// Check both ends without reading the line into memory.
	file, err := os.Open(filepath.Join(dir, "out.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	end := make([]byte, 200)
	if _, err := file.ReadAt(end, info.Size()-200); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	want := `x","_error":{"kind":"record","message":"the line has 209715208 bytes, more than max-record-bytes 16777216","step":"echo","line":2}}` + "\n" + `{"c":3}` + "\n"
	if !strings.HasSuffix(string(end), want) {
		t.Errorf("the output ends with %s", end)
	}
}

// TestManyTinyLines: ten million lines pass through unchanged.
func TestManyTinyLines(t *testing.T) {
	if testing.Short() {
		t.Skip("ten million lines")
	}
	dir := t.TempDir()
	lines := 10_000_000
	if raceEnabled {
		lines = 1_000_000 // the detector makes it ten times slower
	}
	sum := sha256.New()
	create(t, filepath.Join(dir, "in.jsonl"), func(w *bufio.Writer) {
		both, block := io.MultiWriter(w, sum), strings.Repeat("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", 1000)
		for range lines / 10_000 {
			_, _ = io.WriteString(both, block)
		}
	})
	exit, stderr := gpurun(t, dir, "run", "-k", "echo", "--gpus", "cpu:2", "--batch-size", "10000", "in.jsonl", "-o", "out.jsonl")
	if exit != 0 {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	got := sha256.New()
	file, err := os.Open(filepath.Join(dir, "out.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(got, file); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Error("output differs from input")
	}
}

// TestWithoutNVML: a program built without a C compiler reports it and runs on the CPU.
func TestWithoutNVML(t *testing.T) {
	if os.Getenv("GPURUN_TEST_ALL") == "" { // TestPlatforms checks the types of such a program
		t.Skip("compiles everything once more: make test-all runs it")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "gpurun")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.Command(program, "version").Output()
	if err != nil || !strings.Contains(string(out), "without NVML") {
		t.Errorf("version: %s %v", out, err)
	}
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		t.Skip("this machine has an NVIDIA driver: such a program refuses to run here")
	}
	create(t, filepath.Join(dir, "in.jsonl"), func(w *bufio.Writer) { fmt.Fprintln(w, `{"a":1}`) })
	run := exec.Command(program, "run", "-k", "echo", "in.jsonl", "-o", "out.jsonl")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("run: %v\n%s", err, out)
	}
}
