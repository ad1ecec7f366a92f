package orchestrator_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// hostile starts processes in each of the ways in which one may escape, notes them in its folder, and
// waits for the test in its second batch.
const hostile = `
import os, subprocess, sys, time
HERE, loaded = os.path.dirname(os.path.abspath(__file__)) + "/data/", os.getpid()
def note(kind, pid):
    open(HERE + "%s-%d" % (kind, pid), "w").close()
note("template", loaded)
def setup():
    assert os.getpid() != loaded or os.path.exists(HERE + "fresh")
    own = "of-%d" % os.getpid()
    note(own, subprocess.Popen(["sleep", "1000"]).pid)
    note(own, subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(1000)
        os._exit(0)
    note(own, pid)
    note("interpreter", os.getpid())
def process(batch):
    while batch["id"][0] > 50 and not os.path.exists(HERE + "go"):
        time.sleep(0.01)
    return {"x": [2 * i for i in batch["id"]]}
`

// noted returns the pids that a kernel has noted.
func noted(d jobDir, kind string) (pids []int) {
	paths, _ := filepath.Glob(d.join("data/" + kind + "-*"))
	for _, path := range paths {
		pid, _ := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:])
		pids = append(pids, pid)
	}
	return pids
}

// guardsOf returns the guards of templates below a mark.
func guardsOf(mark string) (pids []int) {
	for _, pid := range markedProcesses(mark) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(command), wire.TemplatesArgument) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Whichever process of a job is killed, everything that the lost interpreters have started ends,
// sessions of their own included; the job computes everything, and nothing is left.
func TestTemplateDeaths(t *testing.T) {
	t.Parallel()
	needPython(t)
	parents := func(pids []int) (list []int) {
		for _, pid := range pids {
			_, parent := processStat(pid)
			list = append(list, parent)
		}
		return list
	}
	for _, victim := range []struct {
		name string
		find func(d jobDir, mark string, workers []int) []int

		interpreters bool // they end with the victim
		stopped      bool // the first is stopped before the others are killed
		orchestrator bool // it is killed, too
	}{
		{name: "template", find: func(d jobDir, _ string, _ []int) []int { return noted(d, "template") }},
		{name: "stopped template, then interpreter", stopped: true, interpreters: true, find: func(d jobDir, _ string, _ []int) []int {
			return append(noted(d, "template"), noted(d, "interpreter")...)
		}},
		{name: "interpreter", interpreters: true, find: func(d jobDir, _ string, _ []int) []int { return noted(d, "interpreter") }},
		{name: "guard", interpreters: true, find: func(_ jobDir, mark string, _ []int) []int { return guardsOf(mark) }},
		{name: "kernel", interpreters: true, find: func(_ jobDir, _ string, workers []int) (list []int) {
			for _, pid := range workers {
				list = append(list, kernelOf(pid))
			}
			return list
		}},
		{name: "worker", interpreters: true, find: func(_ jobDir, _ string, workers []int) []int { return workers }},
		{name: "guard of a worker", find: func(_ jobDir, _ string, workers []int) []int { return parents(workers) }},
		{name: "orchestrator", interpreters: true, orchestrator: true, find: func(jobDir, string, []int) []int { return nil }},
		{name: "orchestrator and template", interpreters: true, orchestrator: true, find: func(d jobDir, _ string, _ []int) []int { return noted(d, "template") }},
		{name: "orchestrator and guard", interpreters: true, orchestrator: true, find: func(_ jobDir, mark string, _ []int) []int { return guardsOf(mark) }},
	} {
		t.Run(victim.name, func(t *testing.T) {
			t.Parallel()
			const n = 400
			d := newJobDir(t, numbered(n))
			d.mkdir("data")
			d.write("kernel.py", hostile)
			c := d.config(d.join("kernel.py"))
			c.Batching.Size, c.Resume.Checkpoint = 20, 50*time.Millisecond
			mark := fmt.Sprintf("templates-%s-%d", strings.ReplaceAll(victim.name, " ", "-"), os.Getpid())
			temp := shortTemp(t)
			job := startDriver(t, driverOf(t, c), mark, "TMPDIR="+temp)
			workers := job.awaitWorkers(t, 2)
			if of := noted(d, "of-*"); len(noted(d, "template")) != 1 || len(noted(d, "interpreter")) != 2 || len(of) != 6 {
				t.Fatalf("this test shows nothing: %v", tree(d.join("data")))
			}
			touch(d.join("data/fresh"))
			below := noted(d, "of-*")
			pids := victim.find(d, mark, workers)
			if victim.stopped {
				_ = syscall.Kill(pids[0], syscall.SIGSTOP)
				killAll(pids[1:])
				awaitDead(t, pids[1:])
			}
			if victim.orchestrator {
				_ = job.cmd.Process.Kill()
			}
			killAll(pids)
			awaitDead(t, pids)
			if victim.interpreters {
				awaitDead(t, below)
			}
			touch(d.join("data/go"))
			end := job.wait(t)
			if victim.orchestrator {
				awaitGone(t, mark)
				end = startDriver(t, driverOf(t, c), mark, "TMPDIR="+temp).wait(t)
			}
			if !end.done() {
				t.Fatalf("%s\n%s", end, d.logs())
			}
			awaitGone(t, mark)
			var want strings.Builder
			for i := range n {
				fmt.Fprintf(&want, "{\"id\":%d,\"x\":%d}\n", i, 2*i)
			}
			if d.read("out.jsonl") != want.String() {
				t.Errorf("output: %s", d.read("out.jsonl"))
			}
			if left := tree(temp); len(left) > 0 {
				t.Errorf("left in the temporary folder: %v", left)
			}
		})
	}
}

// A template that is killed while it loads is none: the workers start without.
func TestTemplateKilledWhileItLoads(t *testing.T) {
	t.Parallel()
	needPython(t)
	d := newJobDir(t, numbered(100))
	d.write("kernel.py", `
import os
try: os.mkdir(os.path.dirname(os.path.abspath(__file__)) + "/once")
except FileExistsError: pass
else: os.kill(os.getpid(), 9)
def process(batch): return {"x": batch["id"]}
`)
	if report := mustRun(t, d, d.config(d.join("kernel.py"))); report.Succeeded != 100 || report.Failed > 0 {
		t.Errorf("%+v", report)
	}
}

// Shared memory of the system that is full is no obstacle: templates and their children have their
// own.
func TestTemplateWithoutSharedMemory(t *testing.T) {
	t.Parallel()
	needPython(t)
	d := newJobDir(t, numbered(1000))
	d.write("kernel.py", "import os\nloaded = os.getpid()\ndef setup():\n    assert os.getpid() != loaded\ndef process(batch): return {'x': batch['id']}")
	const full = "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"
	if text, err := exec.Command("unshare", "-m", "sh", "-c", full).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: a job without shared memory, because this user may not mount: %v %s", err, text)
	}
	mark := fmt.Sprintf("templates-memory-%d", os.Getpid())
	job := startCommand(t, exec.Command("unshare", "-m", "sh", "-c", full+` && exec "$0"`, wire.Self()), driverOf(t, d.config(d.join("kernel.py"))), mark)
	end := job.wait(t)
	if !end.done() || end.report.Succeeded != 1000 {
		t.Fatalf("%s: %+v\n%s", end, end.report, d.logs())
	}
	awaitGone(t, mark)
}

// awaitDead waits until none of the processes is left.
func awaitDead(t *testing.T, pids []int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var left []int
		for _, pid := range pids {
			if alive(pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("still there: %v", describe(left))
		}
	}
}
