package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowJob starts a job, as a program of its own, that takes far longer than the
// test, and waits until it computes.
func slowJob(t *testing.T, kernel string, before ...string) (cmd *exec.Cmd, stderr said, dir string) {
	t.Helper()
	dir = t.TempDir()
	var in strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&in, "{\"id\":%d}\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(in.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "gpurun")
	if err := os.Symlink(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	events := filepath.Join(dir, "events.jsonl")
	args := append(before, program, "run", "-k", kernel, "--batch-size", "4",
		"--json-events="+events, "in.jsonl", "-o", "out.jsonl")
	cmd = exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GPURUN_TEST_COMMAND=1")
	stderr = said(filepath.Join(dir, "stderr"))
	file, err := os.Create(string(stderr))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	await(t, "the first batch", func() bool {
		data, _ := os.ReadFile(events)
		return bytes.Contains(data, []byte(`"event":"progress"`)) || bytes.Contains(data, []byte(`"event":"chunk_started"`))
	})
	return cmd, stderr, dir
}

// said is a file that a program writes its standard error to.
type said string

func (s said) String() string {
	data, _ := os.ReadFile(string(s))
	return string(data)
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

const slowKernel = `exec:while read -r line; do sleep 0.02; echo "$line"; done`

// TestSignals: the first signal stops at the next batch border, with a report
// that adds up; the exit status tells which it was.
func TestSignals(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd, stderr, dir := slowJob(t, slowKernel)
			_ = cmd.Process.Signal(signal)
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit status %d, want %d\n%s", got, want, stderr)
			}
			for _, text := range []string{"stopping", "pending", "the same command goes on"} {
				if !strings.Contains(stderr.String(), text) {
					t.Errorf("stderr lacks %q:\n%s", text, stderr)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "out.jsonl")); err == nil {
				t.Error("there is an output")
			}
		})
	}
}

// TestSecondSignal ends a job whose batch never ends.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	cmd, stderr, _ := slowJob(t, "exec:sleep 1000")
	_ = cmd.Process.Signal(syscall.SIGINT)
	time.Sleep(200 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGINT)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("still running\n%s", stderr)
	}
	if got := cmd.ProcessState.ExitCode(); got != 130 {
		t.Errorf("exit status %d\n%s", got, stderr)
	}
}

// TestNohup: an ignored SIGHUP stays ignored.
func TestNohup(t *testing.T) {
	t.Parallel()
	cmd, stderr, dir := slowJob(t, slowKernel, "nohup")
	_ = cmd.Process.Signal(syscall.SIGHUP)
	time.Sleep(300 * time.Millisecond)
	if strings.Contains(stderr.String(), "stopping") {
		t.Errorf("stopped by an ignored signal:\n%s", stderr)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 143 {
		t.Errorf("exit status %d in %s\n%s", got, dir, stderr)
	}
}
