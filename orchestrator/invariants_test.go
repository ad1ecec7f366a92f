package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestInvariant1CountsAddUp: for every way in which a job can end. checkReport checks
// the sum; these are the ways.
func TestInvariant1CountsAddUp(t *testing.T) {
	poisoned := func(how string) string { return numbered(20) + `{"poison":"` + how + `"}` + "\n" + numbered(20) }
	tests := []struct {
		name    string
		in      string
		kernel  string
		config  func(c *orchestrator.Config)
		stop    string // the event at which the job is asked to stop
		abort   bool
		kind    fault.Kind // Unknown: no error
		pending bool
		// uncounted: it ends before its input has been counted to the end.
		uncounted bool
	}{
		{name: "done", in: numbered(40), kernel: "echo"},
		{name: "records failed", in: poisoned("fail"), kernel: "test-poison"},
		{name: "kernel crashed", in: poisoned("panic"), kernel: "test-poison"},
		{name: "device lost on every worker", in: poisoned("device"), kernel: "test-poison", kind: fault.NoDevice, pending: true,
			config: func(c *orchestrator.Config) { *c = orchestrator.WithFirstProbe(*c, 10*time.Millisecond) }},
		{name: "stopped", in: numbered(400), kernel: "test-slow", stop: "progress", kind: fault.Canceled, pending: true},
		{name: "stopped at once", in: numbered(400), kernel: "test-slow", stop: "progress", abort: true, kind: fault.Canceled, pending: true},
		{name: "stopped before the first batch", in: numbered(400), kernel: "test-slow", stop: "worker_started", kind: fault.Canceled, pending: true},
		{name: "stopped while it is counted", in: numbered(400), kernel: "test-slow", stop: "progress", kind: fault.Canceled, pending: true, uncounted: true,
			config: func(c *orchestrator.Config) { c.Input.Split, c.Batching.ChunksPerGPU = input.SplitBytes, 40 }},
		{name: "device lost while it is counted", in: poisoned("device"), kernel: "test-poison", kind: fault.NoDevice, pending: true, uncounted: true,
			config: func(c *orchestrator.Config) {
				c.Input.Split, c.Batching.ChunksPerGPU, c.Devices.GPUs = input.SplitBytes, 40, "cpu:1"
			}},
		{name: "stream stopped", in: numbered(4000), kernel: "test-slow", stop: "progress", kind: fault.Canceled, pending: true, uncounted: true,
			config: func(c *orchestrator.Config) {
				file, _ := os.Open(c.Input.Path)
				c.Input.Path, c.Input.Stdin, c.Input.ChunkRecords = "-", file, 10
			}},
		{name: "output is full", in: numbered(400), kernel: "echo", kind: fault.Storage,
			config: func(c *orchestrator.Config) { c.Output.Path = "/dev/full" }},
		{name: "kernel does not open", in: numbered(40), kernel: "test-open", kind: fault.Incompatible, pending: true,
			config: func(c *orchestrator.Config) { c.Kernel.Config = []byte(`"error"`) }},
		{name: "input shrinks", in: numbered(4000), kernel: "test-slow", kind: fault.Conflict, pending: true,
			config: func(c *orchestrator.Config) {
				c.Display.OnEvent = func(e orchestrator.Event) {
					if _, ok := e.(orchestrator.Planned); ok {
						_ = os.Truncate(c.Input.Path, 10)
					}
				}
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("XDG_STATE_HOME", t.TempDir())
			d := newJobDir(t, test.in)
			config := d.config(test.kernel)
			config.Batching.Size = 5
			if test.kernel == "test-slow" {
				config.Kernel.Config = []byte(`{"Milliseconds":20}`)
			}
			if test.config != nil {
				test.config(&config)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if test.stop != "" {
				abort := make(chan struct{})
				config.Abort = abort
				config.Display.OnEvent = func(e orchestrator.Event) {
					if e.EventName() == test.stop && ctx.Err() == nil {
						cancel()
						if test.abort {
							close(abort)
						}
					}
				}
			}
			report, err := runContext(t, ctx, config)
			if test.kind == fault.Unknown {
				if err != nil {
					t.Fatalf("%v\n%s", err, d.logs())
				}
			} else {
				wantFault(t, err, test.kind)
			}
			if test.pending && report.Pending == 0 {
				t.Errorf("nothing pending: %+v", report)
			}
			if report.Uncounted != test.uncounted {
				t.Errorf("uncounted %t: %+v", report.Uncounted, report)
			}
			if _, statErr := os.Stat(d.join("out.jsonl")); (statErr == nil) != (err == nil) {
				t.Errorf("output present: %t, error: %v", statErr == nil, err)
			}
		})
	}
}

// TestInvariant2OrderIsInputOrder: chunks of unequal speed on several workers come out
// in input order.
func TestInvariant2OrderIsInputOrder(t *testing.T) {
	in := numbered(1999)
	d := newJobDir(t, in)
	config := d.config("test-slow")
	config.Devices.GPUs, config.Batching.Size, config.Batching.ChunksPerGPU = "cpu:4", 16, 8
	config.Kernel.Config = []byte(`{"Milliseconds":2}`)
	var finished []int64
	config.Display.OnEvent = func(e orchestrator.Event) {
		if done, ok := e.(orchestrator.ChunkDone); ok {
			finished = append(finished, done.First)
		}
	}
	mustRun(t, d, config)
	if d.read("out.jsonl") != in {
		t.Error("output order differs from input order")
	}
	if slices.IsSorted(finished) {
		t.Error("the chunks finished in order: this test shows nothing")
	}
}

// TestInvariant5BadRecordCostsOnlyItself: one bad record among many, for every way of
// being bad.
func TestInvariant5BadRecordCostsOnlyItself(t *testing.T) {
	t.Parallel()
	for how, kind := range map[string]string{
		"fail": "record", "invalid": "record", "newline": "record",
		"error": "batch", "missing": "batch", "twice": "batch", "oom": "oom",
		"panic": "crash", "exit": "crash", "segv": "crash", "kill": "crash",
		"hang": "timeout", "stop": "timeout",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			bad := []int{13, 77}
			var in, want strings.Builder
			for i := range 100 {
				if slices.Contains(bad, i) {
					fmt.Fprintf(&in, "{\"id\":%d,\"poison\":%q}\n", i, how)
				} else {
					fmt.Fprintf(&in, "{\"id\":%d}\n", i)
					fmt.Fprintf(&want, "{\"id\":%d}\n", i)
				}
			}
			d := newJobDir(t, in.String())
			config := d.config("test-poison")
			config.Batching.Size, config.Batching.ChunksPerGPU = 32, 1
			if kind == "timeout" {
				config.Failures.Timeout, config.Failures.OpenTimeout = 1500*time.Millisecond, 1500*time.Millisecond
			}
			report := mustRun(t, d, config)
			output := d.read("out.jsonl")
			var good strings.Builder
			for i, line := range slices.Collect(strings.Lines(output)) {
				if slices.Contains(bad, i) {
					if got := marks(t, line)[0]; got != kind || !strings.HasPrefix(line, fmt.Sprintf(`{"id":%d,"poison"`, i)) {
						t.Errorf("bad record %d: kind %q, want %q: %s", i, got, kind, line)
					}
				} else {
					good.WriteString(line)
				}
			}
			if diff := differences(want.String(), good.String()); diff != "" {
				t.Errorf("good records suffered: %s", diff)
			}
			if report.Failed != 2 || report.Succeeded != 98 {
				t.Errorf("report: %+v", report)
			}
			for _, w := range report.Workers {
				if w.Retired || w.Lost > 0 {
					t.Errorf("a worker was lost to a bad record: %+v", w)
				}
			}
			if kind == "crash" && how == "exit" {
				failures := d.read("out.jsonl.gpurun/failures.jsonl")
				if !strings.Contains(failures, "my last words") || !strings.Contains(output, "exit status 7") {
					t.Errorf("the kernel's exit is not reported: %s", failures)
				}
			}
		})
	}
}

// TestInvariant8KernelSeesExactlyItsGPUs: on a machine with four GPUs, each worker is
// pinned to its own.
func TestInvariant8KernelSeesExactlyItsGPUs(t *testing.T) {
	tests := []struct {
		name      string
		inherited string
		change    func(c *orchestrator.Config)
		want      []string // values of CUDA_VISIBLE_DEVICES
		workers   int      // default one for each of those
	}{
		{name: "all", want: []string{"0", "1", "2", "3"}},
		{name: "some", change: func(c *orchestrator.Config) { c.Devices.GPUs = "1,3" }, want: []string{"1", "3"}},
		{name: "two for each", change: func(c *orchestrator.Config) { c.Devices.GPUsPerWorker = 2 }, want: []string{"0,1", "2,3"}},
		{name: "two on each", change: func(c *orchestrator.Config) { c.Devices.GPUs, c.Devices.WorkersPerGPU = "0,1", 2 }, want: []string{"0", "1"}, workers: 4},
		{name: "by uuid", change: func(c *orchestrator.Config) { c.Devices.GPUs, c.Devices.PinUUID = "2", true }, want: []string{"GPU-00000002-0000-4000-8000-000000000000"}},
		{name: "inherited", inherited: "2,3", want: []string{"2", "3"}},
		{name: "CPU", change: func(c *orchestrator.Config) { c.Devices.GPUs = "cpu:2" }, want: []string{""}, workers: 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.inherited != "" {
				t.Setenv("CUDA_VISIBLE_DEVICES", test.inherited)
			} else {
				t.Setenv("CUDA_VISIBLE_DEVICES", "")
				os.Unsetenv("CUDA_VISIBLE_DEVICES")
			}
			d := newJobDir(t, numbered(64))
			config := d.config("test-where")
			config.Devices.GPUs, config.Batching.Size = "all", 1
			config.Kernel.Config = fmt.Appendf(nil, `{"Folder":%q,"Workers":%d}`, t.TempDir(), max(test.workers, len(test.want)))
			if test.change != nil {
				test.change(&config)
			}
			mustRun(t, d, orchestrator.WithDevices(config, gpu.Options{NVML: gputest.New(4)}))
			seen := make(map[string]bool)
			for line := range strings.Lines(d.read("out.jsonl")) {
				var record struct {
					Visible string `json:"CUDA_VISIBLE_DEVICES"`
					Threads string `json:"OMP_NUM_THREADS"`
				}
				if err := json.Unmarshal([]byte(line), &record); err != nil {
					t.Fatal(err)
				}
				seen[record.Visible] = true
				if n, err := strconv.Atoi(record.Threads); err != nil || n < 1 {
					t.Fatalf("OMP_NUM_THREADS=%q", record.Threads)
				}
			}
			var got []string
			for token := range seen {
				got = append(got, token)
			}
			slices.Sort(got)
			if diff := differences(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestInvariant9RunsWithoutGPU: the simplest call, on whatever machine this is.
func TestInvariant9RunsWithoutGPU(t *testing.T) {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	d := newJobDir(t, numbered(10))
	config := d.config("echo")
	config.Devices.GPUs = ""
	report := mustRun(t, d, config)
	if len(report.Workers) == 0 || !strings.HasPrefix(report.Workers[0].Device, "CPU") {
		t.Errorf("workers: %+v", report.Workers)
	}
}

// TestInvariant4NoProcessSurvives: whichever process is killed, nothing of the job
// remains two seconds after the orchestrator exits: no grandchild in its own session,
// and no daemon without the job's environment.
func TestInvariant4NoProcessSurvives(t *testing.T) {
	t.Parallel()
	for i, victims := range []string{"orchestrator", "worker, then orchestrator", "orchestrator and workers", "workers and orchestrator", "guard, then orchestrator", "orchestrator, with workers stopped", "none"} {
		t.Run(victims, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("%s-%d", strings.ReplaceAll(victims, " ", "-"), os.Getpid())
			daemon := fmt.Sprintf("%d.%d", 1000+i, os.Getpid())
			t.Cleanup(func() { killAll(sleepers(daemon)) })
			records := 100000
			if victims == "none" {
				records = 100 // still running when its processes are counted
			}
			d := newJobDir(t, numbered(records))
			config := d.config("test-nursery")
			config.Batching.Size, config.Devices.GPUs, config.Kernel.Config = 1, "cpu:2", fmt.Appendf(nil, "%q", daemon)
			temp := shortTemp(t)
			job := startDriver(t, driverOf(t, config), mark, "TMPDIR="+temp)
			workers := job.awaitWorkers(t, 2)
			job.await(t, "progress")
			if n := len(markedProcesses(mark)); n < 11 { // orchestrator; guards, workers, kernels and their two children
				t.Fatalf("only %d processes run: this test shows nothing", n)
			}
			awaitCount(t, d, "daemons", 1, func() int { return len(sleepers(daemon)) })
			switch victims {
			case "orchestrator":
				_ = job.cmd.Process.Kill()
			case "worker, then orchestrator":
				killAll(workers[:1])
				job.await(t, "worker_lost")
				_ = job.cmd.Process.Kill()
			case "orchestrator and workers":
				_ = job.cmd.Process.Kill()
				killAll(workers)
			case "workers and orchestrator":
				killAll(workers)
				_ = job.cmd.Process.Kill()
			case "orchestrator, with workers stopped":
				for _, pid := range workers {
					_ = syscall.Kill(pid, syscall.SIGSTOP)
				}
				_ = job.cmd.Process.Kill()
			case "guard, then orchestrator":
				_, guard := processStat(workers[0])
				killAll([]int{guard})
				_ = job.cmd.Process.Kill()
			}
			job.wait(t)
			awaitGone(t, mark)
			if left := describe(sleepers(daemon)); len(left) > 0 {
				t.Errorf("daemons survive: %v", left)
			}
			// The last guard removes the folder of the sockets, unless it exits before the
			// orchestrator: then the next job of the output removes it (TestLockRemovesOnlyRunDirs).
			guardsFirst := victims == "guard, then orchestrator" || victims == "workers and orchestrator"
			if left := tree(temp); len(left) > 0 && !guardsFirst {
				t.Errorf("left in the temporary folder: %v", left)
			}
		})
	}
}

// TestNextJobReapsWhatAMassKillLeft: when all gpurun processes are killed at the same
// instant, the next job kills what the kernel has started, and nothing of a running
// job. Jobs of other tests reap, too: if one of them came first, the test tries again.
func TestNextJobReapsWhatAMassKillLeft(t *testing.T) {
	t.Parallel()
	start := func(name string) (*driver, string) {
		d := newJobDir(t, numbered(100000))
		config := d.config("test-nursery")
		config.Batching.Size = 1
		mark := fmt.Sprintf("%s-%d", name, os.Getpid())
		job := startDriver(t, driverOf(t, config), mark)
		job.await(t, "progress")
		return job, mark
	}
	living, livingMark := start("living")
	before := markedProcesses(livingMark)
	reaped := false
	for i := 0; i < 5 && !reaped; i++ {
		dead, deadMark := start(fmt.Sprintf("dead%d", i))
		killAtOnce(t, dead, deadMark)
		if len(markedProcesses(deadMark)) == 0 {
			continue // another job came first
		}
		d := newJobDir(t, numbered(1))
		config := d.config("echo")
		config.Display.OnEvent = func(e orchestrator.Event) {
			if notice, ok := e.(orchestrator.Notice); ok {
				reaped = reaped || strings.Contains(notice.Text, "left over from an earlier gpurun")
			}
		}
		mustRun(t, d, config)
		if left := markedProcesses(deadMark); len(left) > 0 {
			t.Errorf("the next job left %v", describe(left))
		}
		if after := markedProcesses(livingMark); len(after) < len(before) {
			t.Errorf("the next job killed processes of a running one: %v, before %v", describe(after), before)
		}
	}
	if !reaped {
		t.Error("no job reported that it reaped what was left over")
	}
	_ = living.cmd.Process.Kill()
	living.wait(t)
	awaitGone(t, livingMark)
}

// killAtOnce kills all processes of a job but those that its kernel started. None of them
// sees another exit.
func killAtOnce(t *testing.T, job *driver, mark string) {
	t.Helper()
	_ = job.cmd.Process.Signal(syscall.SIGSTOP)
	ours := slices.DeleteFunc(markedProcesses(mark), func(pid int) bool {
		return strings.HasPrefix(describe([]int{pid})[0], fmt.Sprintf("%d sleep", pid))
	})
	for _, pid := range ours {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	killAll(ours)
	job.wait(t)
}

func killAll(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// sleepers returns the processes that sleep for this many seconds.
func sleepers(seconds string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if data, _ := os.ReadFile(path); strings.HasSuffix(string(data), "sleep\x00"+seconds+"\x00") {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestInvariant7MemoryDoesNotGrow: the peak memory of orchestrator and workers is the
// same for ten times the input.
func TestInvariant7MemoryDoesNotGrow(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 200 MB")
	}
	peak := func(records int) (most int64) {
		line := fmt.Sprintf("{\"text\":%q}\n", strings.Repeat("lorem ipsum ", 80))
		d := newJobDir(t, strings.Repeat(line, records))
		mark := fmt.Sprintf("memory-%d-%d", records, os.Getpid())
		job := startDriver(t, driverOf(t, d.config("echo")), mark)
		for job.events.Scan() { // at every event, while all are alive
			for _, pid := range markedProcesses(mark) {
				most = max(most, peakOf(pid))
			}
		}
		if err := job.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return most
	}
	small, large := peak(10_000), peak(100_000)
	t.Logf("peak %d MiB for 10 MB, %d MiB for 100 MB", small>>20, large>>20)
	if large > small+small/2+(32<<20) {
		t.Errorf("peak memory grew from %d MiB to %d MiB", small>>20, large>>20)
	}
}

// peakOf returns the most memory that a process has used so far.
func peakOf(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		return 0
	}
	kib, _ := strconv.ParseInt(string(match[1]), 10, 64)
	return kib << 10
}
