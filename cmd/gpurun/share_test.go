package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
)

// sharedHost is a simulated machine whose GPUs programs share.
type sharedHost struct {
	t    *testing.T
	dir  string
	env  []string
	runs map[string]*exec.Cmd
}

// newHost returns a machine with this many GPUs of 80 GiB; with 0, it has no driver.
func newHost(t *testing.T, gpus int) *sharedHost {
	t.Helper()
	h := &sharedHost{t: t, dir: t.TempDir(), runs: make(map[string]*exec.Cmd)}
	h.env = append(os.Environ(), "GPURUN_TEST_COMMAND=1",
		lease.Variable+"="+h.join("leases"), jobs.Variable+"="+h.join("jobs"))
	if gpus > 0 {
		stub := nvmlStub(t)
		if stub == "" {
			t.Skip("SKIPPED: needs a C compiler and NVML")
		}
		h.env = append(h.env, "LD_LIBRARY_PATH="+stub, fmt.Sprintf("NVMLSTUB_GPUS=%d", gpus))
	}
	if err := os.WriteFile(h.join("in.jsonl"), []byte(strings.Repeat("{\"a\":1}\n", 2000)), 0o666); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *sharedHost) join(name string) string { return filepath.Join(h.dir, name) }

func (h *sharedHost) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = h.dir, h.env
	return cmd
}

// gpurun runs a command to its end.
func (h *sharedHost) gpurun(args ...string) string {
	h.t.Helper()
	out, err := h.command(args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("gpurun %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// patient responds once the file "go" exists.
const patient = `exec:while read -r line; do until [ -e go ]; do sleep 0.02; done; echo "$line"; done`

// start starts a job with this name.
func (h *sharedHost) start(name, kernel string, args ...string) {
	h.t.Helper()
	cmd := h.command(append([]string{"run", "-k", kernel, "--batch-size", "4", "--name", name, "in.jsonl", "-o", name + ".jsonl"}, args...)...)
	file, err := os.Create(h.join(name + ".stderr"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.runs[name] = cmd
	h.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

func (h *sharedHost) said(name string) string { return said(h.join(name + ".stderr")).String() }

// wait returns the exit status of a job.
func (h *sharedHost) wait(name string) int {
	h.t.Helper()
	_ = h.runs[name].Wait()
	return h.runs[name].ProcessState.ExitCode()
}

// overview is what gpurun status reports.
func (h *sharedHost) overview() (o host.Overview) {
	h.t.Helper()
	text := h.gpurun("status", "--json")
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		h.t.Fatalf("%v: %s", err, text)
	}
	return o
}

func (h *sharedHost) phase(name string) (p view.Phase) {
	for _, job := range h.overview().Jobs {
		if job.Job.Name == name {
			p = job.Phase
		}
	}
	return p
}

// holds returns the GPUs of a job, once it has some.
func (h *sharedHost) holds(name string) (gpus []int) {
	h.t.Helper()
	defer func() {
		if len(gpus) == 0 || h.t.Failed() {
			h.t.Logf("%s said: %s\n%+v", name, h.said(name), h.overview())
		}
	}()
	await(h.t, name+" to hold a GPU and run", func() bool {
		gpus = nil
		for _, l := range h.overview().Leases {
			if l.Name == name {
				gpus = append(gpus, l.Index)
			}
		}
		return len(gpus) > 0 && h.phase(name) == view.PhaseRunning
	})
	return gpus
}

// TestJobsTakeTurns: two jobs started at once lease different GPUs; a third waits, reports
// for whom, and gets the first GPU released.
func TestJobsTakeTurns(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	h.start("first", patient, "--num-gpus", "1")
	h.start("second", patient, "--num-gpus", "1")
	if first, second := h.holds("first"), h.holds("second"); slices.Equal(first, second) {
		t.Errorf("both hold %v", first)
	}
	h.start("third", patient, "--wait", "5m")
	await(t, "the third to wait", func() bool { return strings.Contains(h.said("third"), "waiting up to 5m0s for GPUs") })
	for _, name := range []string{"first", "second"} {
		if !strings.Contains(h.said("third"), "is held by "+name+" (process ") {
			t.Errorf("it does not say that it waits for %s: %s", name, h.said("third"))
		}
	}
	if phase := h.phase("third"); phase != view.PhasePreparing {
		t.Errorf("who waits is shown as %s", phase)
	}
	_ = h.runs["first"].Process.Kill() // SIGKILL: it cannot release its lease
	if got := h.holds("third"); len(got) != 1 {
		t.Errorf("the third holds %v", got)
	}
	if err := os.WriteFile(h.join("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "third"} {
		if exit := h.wait(name); exit != 0 {
			t.Errorf("%s: exit status %d\n%s", name, exit, h.said(name))
		}
	}
	if o := h.overview(); len(o.Leases) != 0 || len(o.Jobs) != 0 {
		t.Errorf("left: %+v %+v", o.Leases, o.Jobs)
	}
}

// TestJobsShareMemory: jobs with --gpu-memory share a GPU as long as its memory suffices.
func TestJobsShareMemory(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	h.start("first", patient, "--gpu-memory", "39G")
	h.start("second", patient, "--gpu-memory", "39G")
	h.holds("first")
	h.holds("second")
	h.start("third", patient, "--gpu-memory", "39G", "--wait", "50ms")
	if exit := h.wait("third"); exit != 4 || !strings.Contains(h.said("third"), "79872 MiB leased to ") || !strings.Contains(h.said("third"), "1536 MiB free, 39936 MiB requested") {
		t.Errorf("the third: exit status %d\n%s", exit, h.said("third"))
	}
	h.start("alone", patient, "--wait", "5m")
	await(t, "who wants all to wait for both", func() bool {
		return strings.Contains(h.said("alone"), "first (process ") && strings.Contains(h.said("alone"), "second (process ")
	})
	if err := os.WriteFile(h.join("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second", "alone"} {
		if exit := h.wait(name); exit != 0 {
			t.Errorf("%s: exit status %d\n%s", name, exit, h.said(name))
		}
	}
}

// TestSteerJob: a running job can be inspected, paused, resumed, trimmed and stopped by its
// name, its id, a prefix of the id, and its output.
func TestSteerJob(t *testing.T) {
	t.Parallel()
	h := newHost(t, 0)
	h.start("nightly", slowKernel, "--gpus", "cpu:2")
	await(t, "the first batch", func() bool {
		jobs := h.overview().Jobs
		return len(jobs) == 1 && jobs[0].Done.Records > 0
	})
	job := h.overview().Jobs[0]
	if text := h.gpurun("status"); !strings.Contains(text, job.Job.ID+" nightly") || !strings.Contains(text, "CPU 0, CPU 1") || !strings.Contains(text, "/2,000") {
		t.Errorf("status: %s", text)
	}
	if text := h.gpurun("pause", "nightly"); !strings.Contains(text, "pauses after the current batch of each worker") {
		t.Errorf("pause: %s", text)
	}
	var paused jobs.State
	await(t, "both workers to pause", func() bool {
		paused = h.overview().Jobs[0]
		return paused.Phase == view.PhasePaused &&
			paused.Workers[0].Phase == view.PhasePaused && paused.Workers[1].Phase == view.PhasePaused
	})
	if again := h.overview().Jobs[0]; again.Done != paused.Done || again.Workers[0].PID != job.Workers[0].PID {
		t.Errorf("while paused: %+v, then %+v", paused, again)
	}
	h.gpurun("resume", job.Job.ID[:5])
	await(t, "it to go on", func() bool { return h.overview().Jobs[0].Done.Records > paused.Done.Records })
	if text := h.gpurun("cancel", "nightly.jsonl", "--json"); !strings.Contains(text, `"id": "`+job.Job.ID+`"`) {
		t.Errorf("cancel: %s", text)
	}
	if exit := h.wait("nightly"); exit != 143 || !strings.Contains(h.said("nightly"), "paused: ") || !strings.Contains(h.said("nightly"), "run the same command to resume") {
		t.Errorf("exit status %d\n%s", exit, h.said("nightly"))
	}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		out, err := h.command(verb, "nightly").CombinedOutput()
		if err == nil || !strings.Contains(string(out), `no job "nightly" is running: there are no running jobs`) {
			t.Errorf("%s: %v %s", verb, err, out)
		}
	}
}

// TestStoppedJobIsShown: status shows a job that does not respond, without waiting long.
func TestStoppedJobIsShown(t *testing.T) {
	t.Parallel()
	h := newHost(t, 0)
	h.start("frozen", slowKernel, "--gpus", "cpu:1")
	await(t, "it to run", func() bool { return h.phase("frozen") == view.PhaseRunning })
	freeze(t, h.runs["frozen"])
	if text := h.gpurun("status"); !strings.Contains(text, "does not respond: it may be stopped") {
		t.Errorf("status: %s", text)
	}
}

// freeze stops a process and waits until it is stopped.
func freeze(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	await(t, "the process to be stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return err != nil || strings.Contains(string(stat), ") T ")
	})
}
