package orchestrator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/proctest"
)

// TestUnkillableKernelCostsItsDevice: a kernel process that does not exit after SIGKILL
// costs the job its device but does not hang it. The other device computes everything,
// the messages name the process, and the job ends while the process still exists.
func TestUnkillableKernelCostsItsDevice(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(200))
	config := d.config("test-stuck")
	config.Devices.GPUs, config.Batching.Size = "cpu:2", 4
	config.Failures.Timeout, config.Failures.OpenTimeout = 2*time.Second, 2*time.Second
	config.Kernel.Config = fmt.Appendf(nil, `{"Pid":%q}`, d.join("pid"))
	job := driverOf(t, config)
	job.KillWait = 300 * time.Millisecond
	driver := startDriver(t, job, fmt.Sprintf("stuck-%d", os.Getpid()))

	var kernel int
	for deadline := time.Now().Add(30 * time.Second); kernel == 0; time.Sleep(2 * time.Millisecond) {
		data, _ := os.ReadFile(d.join("pid"))
		kernel, _ = strconv.Atoi(string(data))
		if time.Now().After(deadline) {
			t.Fatal("no kernel hangs: this test shows nothing")
		}
	}
	release := proctest.Hold(t, kernel)
	var lost, notices []string
	for {
		name, value, ok := driver.next(t)
		if !ok {
			break
		}
		switch name {
		case "worker_lost":
			lost = append(lost, value)
		case "notice":
			notices = append(notices, value)
		}
	}
	if outcome := driver.wait(t); !outcome.done() || outcome.report.Succeeded != 200 {
		t.Errorf("%s: %+v", outcome, outcome.report)
	}
	if !alive(kernel) {
		t.Error("the process has ended: this test shows nothing")
	}
	if d.read("out.jsonl") != numbered(200) {
		t.Error("the output is not the input")
	}
	name := fmt.Sprintf("process %d ", kernel)
	if text := strings.Join(lost, "\n"); strings.Count(text, name) != 1 || !strings.Contains(text, `"retired":true`) {
		t.Errorf("lost: %s", text)
	}
	if text := strings.Join(notices, "\n"); !strings.Contains(text, "gpurun exits without waiting for "+name) {
		t.Errorf("notices: %s", text)
	}
	release()
	awaitGone(t, fmt.Sprintf("stuck-%d", os.Getpid()))
}

// TestDoubleForksLeaveNoZombies: a program that forks twice for each record leaves
// orphans to the worker, which reaps them; otherwise a process limit would end the job.
func TestDoubleForksLeaveNoZombies(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(150))
	config := d.config(`exec:n=0; while read -r line; do n=$((n+1)); (sleep 0 &)
		if [ $n = 150 ]; then touch forked; while [ ! -e done ]; do sleep 0.02; done; fi
		echo "$line"; done`)
	config.Kernel.ExecMode, config.Batching.Size, config.Devices.GPUs, config.Dir = "stream", 1, "cpu:1", d.path
	driver := startDriver(t, driverOf(t, config), fmt.Sprintf("orphans-%d", os.Getpid()))
	worker := driver.awaitWorkers(t, 1)[0]
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %s", what)
			}
		}
	}
	await("the forks", func() bool { _, err := os.Stat(d.join("forked")); return err == nil })
	await("the end of all zombies", func() bool { return zombiesOf(worker) == 0 })
	if err := os.WriteFile(d.join("done"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if outcome := driver.wait(t); !outcome.done() || outcome.report.Succeeded != 150 {
		t.Errorf("%s: %+v", outcome, outcome.report)
	}
}

// TestWorkerKilledWhilePlanning: a worker that is killed each time the kernel is asked
// to describe itself stops the job, which can be run again: this is not a bug, and says
// nothing about the kernel.
func TestWorkerKilledWhilePlanning(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(10))
	driver := startDriver(t, driverOf(t, d.config("echo")), fmt.Sprintf("planning-%d", os.Getpid()), crash.Variable+"=worker-describe")
	outcome := driver.wait(t)
	if outcome.err == nil || outcome.err.Kind != "stopped" || !strings.Contains(outcome.err.Message, "the worker process exited: killed by SIGKILL") {
		t.Errorf("%s", outcome)
	}
}

// zombiesOf counts the children of a process that have exited and that it has not
// waited for.
func zombiesOf(parent int) (n int) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		if state, ppid := processStat(pid); state == 'Z' && ppid == parent {
			n++
		}
	}
	return n
}
