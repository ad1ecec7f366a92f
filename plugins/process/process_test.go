package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/plugins"
)

// program returns the command for one of the programs.
func program(t *testing.T, name string) Command {
	t.Helper()
	return Command{
		Path: os.Args[0], Env: append(os.Environ(), kernelVariable+"="+name), Dir: t.TempDir(), SocketDir: socketDir(t),
		StartTimeout: 20 * time.Second, CloseTimeout: 5 * time.Second,
	}
}

// socketDir returns a folder with a short path that must be empty at the end.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := os.ReadDir(dir)
		if len(left) > 0 {
			t.Errorf("left in the folder of sockets: %v", left)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// nothingLeft checks at the end of a test that no child process and no goroutine remains.
func nothingLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if pids := livingChildren(); len(pids) > 0 {
			t.Errorf("processes left: %v", pids)
			proc.KillChildren()
		}
		goleak.VerifyNone(t)
	})
}

func start(t *testing.T, command Command) *Process {
	t.Helper()
	p, err := Start(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// words returns a batch of JSON strings.
func words(list ...string) plugins.Batch {
	records := make([][]byte, len(list))
	for i, word := range list {
		records[i] = strconv.AppendQuote(nil, word)
	}
	return plugins.NewBatch(records)
}

func works(t *testing.T, p *Process) {
	t.Helper()
	if _, err := plugins.Call(t.Context(), p, words("a", "b", "c")); err != nil {
		t.Errorf("it does not work: %v", err)
	}
}

// stat returns a field of /proc/PID/stat, counted after the name: 0 is the state, 1 the
// parent, 2 the group.
func stat(pid, field int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return fields[field]
}

// alive: a zombie is dead.
func alive(pid int) bool {
	state := stat(pid, 0)
	return state != "" && state != "Z" && state != "X"
}

func eachProcess(f func(pid int)) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			f(pid)
		}
	}
}

func livingChildren() []int {
	var pids []int
	eachProcess(func(pid int) {
		if stat(pid, 1) == strconv.Itoa(os.Getpid()) && alive(pid) {
			pids = append(pids, pid)
		}
	})
	return pids
}

func groupAlive(group int) bool {
	found := false
	eachProcess(func(pid int) {
		found = found || stat(pid, 2) == strconv.Itoa(group) && alive(pid)
	})
	return found
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func dies(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

func TestDeaths(t *testing.T) {
	tests := []struct {
		word   string
		says   string
		detail []string
	}{
		{"panic", "kernel process ended: exit status 2", []string{"panic: index out of luck", "misbehaving"}},
		{"exit 7", "kernel process ended: exit status 7", []string{"these are my last words"}},
		{"exit 7 to stdout", "kernel process ended: exit status 7", []string{"these are my last words"}},
		{"segv", "kernel process ended: killed by SIGSEGV", nil},
	}
	for _, test := range tests {
		t.Run(test.word, func(t *testing.T) {
			nothingLeft(t)
			p := start(t, program(t, "good"))
			works(t, p)
			fatal := plugins.Submit(t.Context(), p, words("b", test.word))
			next := plugins.Submit(t.Context(), p, words("c"))
			begin := time.Now()
			err := fatal.Wait(t.Context())
			e := fault.As(err)
			if e == nil || e.Kind != fault.Crash || e.Message != test.says {
				t.Fatalf("error: %#v", err)
			}
			for _, word := range test.detail {
				if !strings.Contains(e.Detail, word) {
					t.Errorf("no %q in the detail:\n%s", word, e.Detail)
				}
			}
			if err := next.Wait(t.Context()); fault.KindOf(err) != fault.Crash {
				t.Errorf("the batch after it: %v", err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			select {
			case <-p.Done():
			default:
				t.Error("Done is not closed")
			}
			if !p.Broken() {
				t.Error("the proxy is not broken")
			}
			if err := p.Close(); fault.KindOf(err) != fault.Crash {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func TestCrashInOpen(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	err := p.Open(t.Context(), plugins.Device{}, plugins.Config(`"open: crash"`))
	if e := fault.As(err); e == nil || e.Kind != fault.Crash || e.Message != "kernel process ended: exit status 9" || !strings.Contains(e.Detail, "the model file is damaged") {
		t.Errorf("error: %#v", err)
	}
}

func TestPanicInDescribe(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	_, err := p.Describe(t.Context(), plugins.Config(`"describe: panic"`))
	if e := fault.As(err); e == nil || e.Kind != fault.Crash || !strings.Contains(e.Detail, "panic: what am I?") {
		t.Errorf("error: %#v", err)
	}
}

// The caller's deadline is reported as such, and killing works on any kernel.
func TestHangs(t *testing.T) {
	calls := map[string]func(context.Context, *Process) error{
		"describe": func(ctx context.Context, p *Process) error {
			_, err := p.Describe(ctx, plugins.Config(`"describe: hang"`))
			return err
		},
		"open": func(ctx context.Context, p *Process) error {
			return p.Open(ctx, plugins.Device{}, plugins.Config(`"open: hang"`))
		},
		"hang": func(ctx context.Context, p *Process) error { _, err := plugins.Call(ctx, p, words("hang")); return err },
		"stop": func(ctx context.Context, p *Process) error { _, err := plugins.Call(ctx, p, words("stop")); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			p := start(t, program(t, "good"))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := call(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error: %v", err)
			}
			begin := time.Now()
			p.Kill()
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("Kill took %s", took)
			}
			if groupAlive(p.Pid()) {
				t.Error("its group lives on")
			}
		})
	}
}

// When a kernel is killed, the batches in flight fail with its exit status.
func TestKillCompletesBatches(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	r := plugins.Submit(t.Context(), p, words("hang"))
	time.AfterFunc(50*time.Millisecond, p.KillGroup)
	if err := r.Wait(t.Context()); fault.KindOf(err) != fault.Crash || !strings.Contains(err.Error(), "killed by SIGKILL") {
		t.Errorf("error: %v", err)
	}
}

// Grandchildren that hold the pipes open hide neither the exit of a kernel nor its cause.
func TestGrandchildren(t *testing.T) {
	for _, end := range []string{"exit 7", "close", "kill"} {
		t.Run(end, func(t *testing.T) {
			nothingLeft(t)
			p := start(t, program(t, "good"))
			results, err := plugins.Call(t.Context(), p, words("children"))
			if err != nil {
				t.Fatal(err)
			}
			var plain, setsid int
			if _, err := fmt.Sscan(string(results.At(0).Lines[0]), &plain, &setsid); err != nil {
				t.Fatal(err)
			}
			if !alive(plain) || !alive(setsid) {
				t.Fatal("the children did not start")
			}
			begin := time.Now()
			switch end {
			case "exit 7":
				_, err := plugins.Call(t.Context(), p, words("exit 7"))
				if e := fault.As(err); e == nil || e.Kind != fault.Crash || !strings.Contains(e.Detail, "these are my last words") {
					t.Errorf("error: %#v", err)
				}
				p.Kill()
			case "close":
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			case "kill":
				p.Kill()
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			dies(t, plain)
			if groupAlive(p.Pid()) {
				t.Error("its group lives on")
			}
			// The worker must reap a child in its own session.
			proc.KillChildren()
			if alive(setsid) {
				t.Error("the child in its own session is still alive")
			}
		})
	}
}

func TestBrokenAnswers(t *testing.T) {
	tests := []struct {
		program string
		kind    fault.Kind
		says    string
		usable  bool // the process can take further batches
	}{
		{"too few", fault.Batch, "kernel returned 2 results for a batch of 3", true},
		{"too many", fault.Batch, "kernel returned 4 results for a batch of 3", true},
		{"unasked", fault.Crash, "kernel answered a batch that was not sent", false},
		{"ends stream", fault.Crash, "connection to the kernel broke", false},
		{"breaks stream", fault.Crash, "out of ideas", false},
	}
	for _, test := range tests {
		t.Run(test.program, func(t *testing.T) {
			nothingLeft(t)
			p := start(t, program(t, test.program))
			p.life.(*child).deathWait = 200 * time.Millisecond
			if _, err := p.Describe(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			_, err := plugins.Call(t.Context(), p, words("a", "b", "c"))
			if fault.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error of kind %s: %v", fault.KindOf(err), err)
			}
			if p.Broken() == test.usable {
				t.Errorf("broken: %v", p.Broken())
			}
		})
	}
}

func TestLargeMessages(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	results, err := plugins.Call(t.Context(), p, words("5 MiB", "a", "40 MiB"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := len(results.At(0).Lines[0]), len(results.At(2).Lines[0]); a != 5<<20 || b != 40<<20 {
		t.Errorf("%d and %d bytes", a, b)
	}
	big := plugins.NewBatch([][]byte{bytes.Repeat([]byte("1"), 10<<20)})
	if _, err := plugins.Call(t.Context(), p, big); err != nil {
		t.Errorf("a large record: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	tests := []struct {
		name, program, env string
		timeout            time.Duration
		kind               fault.Kind // Unknown for none
		says               string
	}{
		{"good", "good", "", 0, fault.Unknown, ""},
		{"error", "good", "error", 0, fault.Incompatible, "close kernel: the cache was not saved"},
		{"exit", "good", "exit", 0, fault.Crash, "exit status 5"},
		{"hang", "good", "hang", 200 * time.Millisecond, fault.Timeout, "did not close within 200ms and was killed"},
		{"ignores the shutdown", "stays", "", 0, fault.Unknown, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			nothingLeft(t)
			command := program(t, test.program)
			command.Env = append(command.Env, "GPURUN_TEST_CLOSE="+test.env)
			if test.timeout > 0 {
				command.CloseTimeout = test.timeout
			}
			p := start(t, command)
			works(t, p)
			begin := time.Now()
			err := p.Close()
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if fault.KindOf(err) != test.kind || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error of kind %s: %v", fault.KindOf(err), err)
			}
			if again := p.Close(); again != err {
				t.Errorf("again: %v", again)
			}
			if groupAlive(p.Pid()) {
				t.Error("its group lives on")
			}
		})
	}
}

// Closing a stopped kernel times out too.
func TestCloseStopped(t *testing.T) {
	nothingLeft(t)
	command := program(t, "good")
	command.CloseTimeout = 200 * time.Millisecond
	p := start(t, command)
	works(t, p)
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kernel is stopped", func() bool { return stat(p.Pid(), 0) == "T" })
	if err := p.Close(); fault.KindOf(err) != fault.Timeout {
		t.Errorf("error: %v", err)
	}
}

// A command started by a kernel exits when the kernel terminates it.
func TestKernelsCanTerminateCommands(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	results, err := plugins.Call(ctx, p, words("terminate"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(results.At(0).Lines[0]); got != `"signal: terminated"` {
		t.Errorf("the command ended by %s", got)
	}
}

// A kernel ignores the signals that schedulers send to every process of a job.
func TestKernelsSurviveStopSignals(t *testing.T) {
	nothingLeft(t)
	p := start(t, program(t, "good"))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := syscall.Kill(p.Pid(), s); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond)
	works(t, p)
}
