package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/proc"
)

// command returns gpurun as a separate process in its own folder.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stderr said, dir string) {
	t.Helper()
	return commandBy(t, nil, args...)
}

// commandBy is command, run by another program.
func commandBy(t *testing.T, before []string, args ...string) (cmd *exec.Cmd, stderr said, dir string) {
	t.Helper()
	dir = t.TempDir()
	link := filepath.Join(dir, "gpurun")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	args = append(append(before, link), args...)
	cmd = exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GPURUN_TEST_COMMAND=1")
	stderr = said(filepath.Join(dir, "stderr"))
	file, err := os.Create(string(stderr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	cmd.Stderr = file
	return cmd, stderr, dir
}

func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
}

// isFull reports whether a write to a pipe would block.
func isFull(pipe *os.File) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLOUT}}, 0)
	return err == nil && n == 0
}

// ends waits for a program to exit, which must not take long.
func ends(t *testing.T, cmd *exec.Cmd, stderr said, want int) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("still running\n%s", stderr)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit status %d, want %d\n%s", got, want, stderr)
	}
}

// writeRecords creates an input.
func writeRecords(t *testing.T, path string, records int) {
	t.Helper()
	var in strings.Builder
	for i := range records {
		fmt.Fprintf(&in, "{\"id\":%d}\n", i)
	}
	if err := os.WriteFile(path, []byte(in.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

// slowJob starts a job that takes far longer than the test, and waits until it computes.
func slowJob(t *testing.T, kernel string, before ...string) (cmd *exec.Cmd, stderr said, dir string) {
	t.Helper()
	cmd, stderr, dir = commandBy(t, before, "run", "-k", kernel, "--batch-size", "4",
		"--json-events=events.jsonl", "in.jsonl", "-o", "out.jsonl")
	writeRecords(t, filepath.Join(dir, "in.jsonl"), 10000)
	events := filepath.Join(dir, "events.jsonl")
	start(t, cmd)
	await(t, "the first batch", func() bool {
		data, _ := os.ReadFile(events)
		return bytes.Contains(data, []byte(`"event":"progress"`)) || bytes.Contains(data, []byte(`"event":"chunk_started"`))
	})
	return cmd, stderr, dir
}

// said is the file of a program's standard error.
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

// awaitStopping waits until a job has received a signal: a second one that arrives before the
// first is handled is lost.
func awaitStopping(t *testing.T, stderr said) {
	t.Helper()
	await(t, "the first signal to arrive", func() bool { return strings.Contains(stderr.String(), "stopping") })
}

const slowKernel = `exec:while read -r line; do sleep 0.02; echo "$line"; done`

// TestSignals: the first signal stops the job after the current batch, with a report that
// adds up; the exit status identifies the signal.
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
			for _, text := range []string{"stopping", "pending", "run the same command to resume"} {
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

// TestSecondSignal: a second signal ends a job whose batch never finishes.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	cmd, stderr, _ := slowJob(t, "exec:sleep 1000")
	_ = cmd.Process.Signal(syscall.SIGINT)
	awaitStopping(t, stderr)
	_ = cmd.Process.Signal(syscall.SIGINT)
	ends(t, cmd, stderr, 130)
}

// TestSignalToEveryProcess: schedulers signal all processes of a job at once. The job
// stops, no record fails, and running the same command finishes it.
func TestSignalToEveryProcess(t *testing.T) {
	python := "import time\ndef process(batch):\n    time.sleep(0.02)\n    return {'x': [1 for _ in batch]}\n"
	for name, kernel := range map[string]string{"python": "slow.py", "exec": slowKernel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("python3"); name == "python" && err != nil {
				t.Skip("SKIPPED: no python3")
			}
			cmd, stderr, dir := command(t, "run", "--gpus", "cpu:1", "-k", kernel, "--batch-size", "4", "--limit", "200",
				"--json-events=events.jsonl", "in.jsonl", "-o", "out.jsonl")
			writeRecords(t, filepath.Join(dir, "in.jsonl"), 200)
			if err := os.WriteFile(filepath.Join(dir, "slow.py"), []byte(python), 0o666); err != nil {
				t.Fatal(err)
			}
			again := exec.Command(cmd.Path, cmd.Args[1:]...)
			again.Dir, again.Env = cmd.Dir, cmd.Env
			start(t, cmd)
			await(t, "the first batch", func() bool {
				data, _ := os.ReadFile(filepath.Join(dir, "events.jsonl"))
				return bytes.Contains(data, []byte(`"event":"progress"`))
			})
			for _, pid := range append(descendants(cmd.Process.Pid), cmd.Process.Pid) {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
			ends(t, cmd, stderr, 143)
			if out, err := again.CombinedOutput(); err != nil {
				t.Errorf("the same command: %v\n%s\nafter\n%s", err, out, stderr)
			}
			if data, _ := os.ReadFile(filepath.Join(dir, "out.jsonl")); bytes.Count(data, []byte("\n")) != 200 || bytes.Contains(data, []byte("_error")) {
				t.Errorf("records suffered:\n%s", data)
			}
		})
	}
}

// descendants returns the descendants of a process.
func descendants(pid int) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		if child, _ := strconv.Atoi(filepath.Base(path)); proc.IsDescendant(child, pid) {
			pids = append(pids, child)
		}
	}
	return pids
}

// TestStderrClosed: a job survives the exit of the reader of its standard error.
func TestStderrClosed(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--json-events=-"}, {"-q"}} {
		cmd, _, dir := command(t, append([]string{"run", "--gpus", "cpu:1", "-k", slowKernel, "--batch-size", "4", "in.jsonl", "-o", "out.jsonl"}, flags...)...)
		writeRecords(t, filepath.Join(dir, "in.jsonl"), 20)
		nobody, stderr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		nobody.Close()
		cmd.Stderr = stderr
		start(t, cmd)
		stderr.Close()
		ends(t, cmd, said(filepath.Join(dir, "stderr")), 0)
		if data, _ := os.ReadFile(filepath.Join(dir, "out.jsonl")); bytes.Count(data, []byte("\n")) != 20 {
			t.Errorf("%v: the output is %q", flags, data)
		}
	}
	// A failure has the same exit status as with a reader.
	cmd, _, dir := command(t, "run", "-k", "echo", "missing.jsonl", "-o", "out.jsonl")
	nobody, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	defer stderr.Close()
	cmd.Stderr = stderr
	start(t, cmd)
	ends(t, cmd, said(filepath.Join(dir, "stderr")), 2)
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

// idleStream starts a job whose standard input delivers one record and then stays open.
func idleStream(t *testing.T, flags ...string) (cmd *exec.Cmd, stderr said, dir string) {
	t.Helper()
	cmd, stderr, dir = command(t, append([]string{"run", "--gpus", "cpu:1", "-k", "echo", "--json-events=events.jsonl", "-", "-o", "out.jsonl"}, flags...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	start(t, cmd)
	if _, err := stdin.Write([]byte("{\"a\":1}\n")); err != nil {
		t.Fatal(err)
	}
	return cmd, stderr, dir
}

// TestSignalWhileIdle: the first signal ends a job that only waits for its standard input,
// and the job keeps its results.
func TestSignalWhileIdle(t *testing.T) {
	t.Parallel()
	cmd, stderr, dir := idleStream(t)
	await(t, "the record", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		return bytes.Contains(data, []byte(`"event":"chunk_done"`))
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	ends(t, cmd, stderr, 143)
	if !strings.Contains(stderr.String(), "1 in = 1 succeeded") {
		t.Errorf("the report does not add up:\n%s", stderr)
	}
}

// TestMaxTimeWhileIdle: --max-time ends such a job as well.
func TestMaxTimeWhileIdle(t *testing.T) {
	t.Parallel()
	cmd, stderr, _ := idleStream(t, "--max-time", "3s")
	ends(t, cmd, stderr, 7)
	if !strings.Contains(stderr.String(), "--max-time") {
		t.Errorf("stderr does not say why:\n%s", stderr)
	}
}

// TestSecondSignalWhileWriting: the output is not being read, and the second signal does
// not wait for a reader. The worker exits, too.
func TestSecondSignalWhileWriting(t *testing.T) {
	t.Parallel()
	cmd, stderr, dir := command(t, "run", "--gpus", "cpu:1", "-k", "echo", "--json-events=events.jsonl", "in.jsonl", "-o", "-")
	writeRecords(t, filepath.Join(dir, "in.jsonl"), 100000)
	nobody, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	defer output.Close()
	cmd.Stdout = output
	start(t, cmd)
	await(t, "a full pipe", func() bool { return isFull(output) })
	_ = cmd.Process.Signal(syscall.SIGTERM)
	awaitStopping(t, stderr)
	_ = cmd.Process.Signal(syscall.SIGINT)
	ends(t, cmd, stderr, 143)
	// The first chunk is larger than a pipe's buffer.
	if !strings.Contains(stderr.String(), "100,000 in = 0 succeeded + 0 failed + 0 dropped + 100,000 pending") {
		t.Errorf("the report counts what is not in the output:\n%s", stderr)
	}
	for _, pid := range workersOf(t, filepath.Join(dir, "events.jsonl")) {
		await(t, "the end of a worker", func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

// TestSecondSignalWhileReporting: the events are not being read either.
func TestSecondSignalWhileReporting(t *testing.T) {
	t.Parallel()
	cmd, stderr, dir := command(t, "run", "--gpus", "cpu:1", "-k", "echo", "--json-events=/dev/stdout", "in.jsonl", "-o", "out.jsonl")
	writeRecords(t, filepath.Join(dir, "in.jsonl"), 1)
	nobody, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	defer output.Close()
	for !isFull(output) {
		if _, err := output.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Stdout = output
	start(t, cmd)
	await(t, "the job folder", func() bool {
		_, err := os.Stat(filepath.Join(dir, "out.jsonl.gpurun", "output.partial"))
		return err == nil
	})
	time.Sleep(200 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	ends(t, cmd, stderr, 143)
}

// TestSignalWhileOpening: opening a pipe without a reader blocks, and one signal is enough
// to end the job.
func TestSignalWhileOpening(t *testing.T) {
	t.Parallel()
	cmd, stderr, dir := command(t, "run", "--gpus", "cpu:1", "-k", "echo", "--json-events=events.jsonl", "in.jsonl", "-o", "pipe")
	writeRecords(t, filepath.Join(dir, "in.jsonl"), 1)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+filepath.Join(dir, "state"))
	start(t, cmd)
	await(t, "the job folder", func() bool {
		logs, _ := filepath.Glob(filepath.Join(dir, "state", "gpurun", "jobs", "*", "logs"))
		return len(logs) > 0
	})
	time.Sleep(200 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	ends(t, cmd, stderr, 143)
}

// workersOf returns the worker processes named in a job's events.
func workersOf(t *testing.T, events string) (pids []int) {
	t.Helper()
	data, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var event struct {
			Event string `json:"event"`
			PID   int    `json:"pid"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		if event.Event == "worker_started" {
			pids = append(pids, event.PID)
		}
	}
	if len(pids) == 0 {
		t.Fatal("no worker was started")
	}
	return pids
}
