package orchestrator_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator"
)

// driver is a job in its own process.
type driver struct {
	cmd    *exec.Cmd
	events *bufio.Scanner
	last   outcome
}

// outcome is how a driver ended.
type outcome struct {
	events   map[string]int
	resuming int64 // records found done, -1 for a new job
	err      *ended
	killed   bool // the driver itself was killed
	victim   int  // the pid it killed; -1 if it did not get that far, 0 if there was none
	report   orchestrator.Report
}

// driverOf returns the driver's job for a Config, without what cannot be passed to
// another process.
func driverOf(t *testing.T, config orchestrator.Config) driverJob {
	t.Helper()
	encoded, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return driverJob{Config: encoded}
}

// startDriver starts a job as its own program, marked so that all of its processes can
// be found.
func startDriver(t *testing.T, job driverJob, mark string, env ...string) *driver {
	t.Helper()
	return startCommand(t, exec.Command(wire.Self()), job, mark, env...)
}

// startCommand starts a job with a command that becomes its program.
func startCommand(t *testing.T, cmd *exec.Cmd, job driverJob, mark string, env ...string) *driver {
	t.Helper()
	encoded, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), driverVariable+"="+string(encoded), "TEST_MARK="+mark)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &driver{
		cmd: cmd, events: bufio.NewScanner(out),
		last: outcome{events: make(map[string]int), resuming: -1, victim: -1},
	}
	d.events.Buffer(nil, 1<<20)
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test fails
	return d
}

// restarter returns a function that starts the job in a process, again after it was killed.
// Commits are durable soon.
func restarter(t *testing.T, config *orchestrator.Config, mark, temp string) func() *driver {
	return func() *driver {
		job := driverOf(t, *config)
		job.DurableEvery = 100 * time.Millisecond
		return startDriver(t, job, mark, "TMPDIR="+temp)
	}
}

// next reads an event; false at the end.
func (d *driver) next(t *testing.T) (name, value string, ok bool) {
	t.Helper()
	if !d.events.Scan() {
		return "", "", false
	}
	name, value, _ = strings.Cut(d.events.Text(), " ")
	d.last.events[name]++
	var err error
	switch name {
	case "resuming":
		var event orchestrator.Resuming
		err = json.Unmarshal([]byte(value), &event)
		d.last.resuming = event.Done
	case "finished":
		var event orchestrator.Finished
		err = json.Unmarshal([]byte(value), &event)
		d.last.report = event.Report
	case "error":
		err = json.Unmarshal([]byte(value), &d.last.err)
	case "killed":
		err = json.Unmarshal([]byte(value), &d.last.victim)
	}
	if err != nil { // a line cut off by death
		t.Logf("%s %s: %v", name, value, err)
	}
	return name, value, true
}

// await reads events up to one of that name.
func (d *driver) await(t *testing.T, name string) string {
	t.Helper()
	for {
		got, value, ok := d.next(t)
		if !ok {
			t.Fatalf("the driver ended before %s", name)
		}
		if got == name {
			return value
		}
	}
}

// awaitWorkers reads events until n workers are ready, and returns their pids.
func (d *driver) awaitWorkers(t *testing.T, n int) (pids []int) {
	t.Helper()
	for ready := 0; ready < n; {
		name, value, ok := d.next(t)
		var started orchestrator.WorkerStarted
		switch {
		case !ok:
			t.Fatalf("the driver ended before %d workers were ready", n)
		case name == "worker_ready":
			ready++
		case name == "worker_started":
			if err := json.Unmarshal([]byte(value), &started); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, started.PID)
		}
	}
	return pids
}

// wait reads to the end.
func (d *driver) wait(t *testing.T) outcome {
	t.Helper()
	for {
		if _, _, ok := d.next(t); !ok {
			break
		}
	}
	_ = d.cmd.Wait()
	status := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	d.last.killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	if !d.last.killed && status.ExitStatus() != 0 && d.last.err == nil {
		t.Errorf("the driver ended by %s without a word", d.cmd.ProcessState)
	}
	return d.last
}

// done reports success.
func (o outcome) done() bool { return !o.killed && o.err == nil }

func (o outcome) String() string {
	switch {
	case o.killed:
		return "killed"
	case o.err != nil:
		return fmt.Sprintf("%s: %s", o.err.Kind, o.err.Message)
	}
	return "done"
}

// markedProcesses returns the live processes started under the mark.
func markedProcesses(mark string) []int {
	entry := []byte("TEST_MARK=" + mark + "\x00")
	return slices.DeleteFunc(allProcesses(), func(pid int) bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err != nil || !bytes.Contains(data, entry) || !alive(pid)
	})
}

// allProcesses returns the processes of the machine. Tests call it so often that a glob would cost
// a twentieth of their time.
func allProcesses() (pids []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitGone waits until no process of a job whose orchestrator has exited remains.
func awaitGone(t *testing.T, mark string) {
	t.Helper()
	gone := time.Now()
	for len(markedProcesses(mark)) > 0 {
		if time.Since(gone) > 20*time.Second {
			t.Fatalf("still there: %v", describe(markedProcesses(mark)))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	state, _ := processStat(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// kernelOf returns the kernel process of a worker, 0 if it has none.
func kernelOf(worker int) int {
	if pids := childrenOf(worker); len(pids) > 0 {
		return pids[0]
	}
	return 0
}

// programOf returns the program that the kernel of a worker runs, also below a shell; 0 if it
// runs none.
func programOf(worker int) (pid int) {
	kernel := kernelOf(worker)
	if kernel == 0 {
		return 0
	}
	for pids := childrenOf(kernel); len(pids) > 0; pids = childrenOf(pid) {
		pid = pids[0]
	}
	if pid == 0 {
		return interpreterOf(worker)
	}
	return pid
}

// interpreterOf returns the interpreter that a template has forked for a worker; 0 if there is none.
func interpreterOf(worker int) int {
	markOf := func(pid int) string {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		_, mark, _ := strings.Cut(string(environ), wire.MarkVariable+"=")
		mark, _, _ = strings.Cut(mark, "\x00")
		return mark
	}
	for _, pid := range allProcesses() {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(command), "-c\x00import os, sys") && markOf(pid) == markOf(worker) {
			return pid
		}
	}
	return 0
}

// childrenOf returns the children of a process that have not exited.
func childrenOf(parent int) []int {
	return slices.DeleteFunc(allProcesses(), func(pid int) bool {
		_, of := processStat(pid)
		return of != parent || !alive(pid)
	})
}

// processStat returns the state and parent of a process; 0 if it has exited.
func processStat(pid int) (state byte, parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := strings.LastIndexByte(string(stat), ')')
	if i < 0 || pid == 0 {
		return 0, 0
	}
	fields := strings.Fields(string(stat[i+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

func describe(pids []int) (texts []string) {
	for _, pid := range pids {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		texts = append(texts, fmt.Sprintf("%d %s", pid, strings.ReplaceAll(string(command), "\x00", " ")))
	}
	return texts
}

// shortTemp returns a temporary folder whose path is short enough for sockets, so that
// it is used.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "gt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// tree lists the files below a folder.
func tree(dir string) (names []string) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	slices.Sort(names)
	return names
}
