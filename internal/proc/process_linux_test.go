package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExitStrings(t *testing.T) {
	for _, test := range []struct {
		exit Exit
		want string
	}{
		{Exit{}, "exit status 0"},
		{Exit{Code: 3, MaxRSS: 1 << 20}, "exit status 3"},
		{Exit{Code: -1, Signal: syscall.SIGKILL}, "killed by SIGKILL"},
		{Exit{Code: -1, Signal: syscall.SIGSEGV}, "killed by SIGSEGV"},
		{Exit{Code: -1, Signal: 40}, "killed by signal 40"},
		{Exit{Code: -1}, "exited, status unknown"},
	} {
		if got := test.exit.String(); got != test.want {
			t.Errorf("%#v: %q", test.exit, got)
		}
	}
}

func TestExit(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0": "exit status 0", "exit 7": "exit status 7", "kill -KILL $$": "killed by SIGKILL", "kill -SEGV $$": "killed by SIGSEGV",
	} {
		p, _ := shell(t, script, nil)
		exit := ended(t, p)
		if exit.String() != want {
			t.Errorf("%s: %s", script, exit)
		}
		if exit.MaxRSS < 1<<14 || exit.MaxRSS > 1<<40 {
			t.Errorf("%s: %d bytes of memory", script, exit.MaxRSS)
		}
	}
}

func TestStartErrors(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{"/no/such/program": os.ErrNotExist, plain: os.ErrPermission} {
		if p, err := Start(Command{Path: path}); !errors.Is(err, want) || p != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Start(Command{Path: "/bin/true", Dir: "/no/such/folder"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder: %v", err)
	}
}

func TestSurroundings(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	extra := filepath.Join(dir, "extra")
	if err := os.WriteFile(extra, []byte("from descriptor 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(extra)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, out := shell(t, `readlink /proc/self/fd/0; pwd; echo "$ONLY:$HOME"; cat <&3; ps -o pgid= -p $$; echo $$`, func(c *Command) {
		c.Dir, c.Env, c.ExtraFiles = dir, []string{"ONLY=this", "PATH=" + os.Getenv("PATH")}, []*os.File{file}
	})
	for _, want := range []string{"/dev/null", dir, "this:", "from descriptor 3"} {
		if got := line(t, out); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	if group, own := pid(t, out), pid(t, out); group != own {
		t.Errorf("process %d is in group %d", own, group)
	}
}

// The rest of the group is killed when its leader exits, before Done is closed.
func TestGroupDiesWithItsLeader(t *testing.T) {
	p, out := shell(t, `sleep 1000 & echo $!; exit 3`, nil)
	child := pid(t, out)
	if exit := ended(t, p); exit.Code != 3 {
		t.Errorf("%s", exit)
	}
	dies(t, child)
}

func TestKillGroup(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		p, out := shell(t, `sleep 1000 & echo $!; wait`, nil)
		child := pid(t, out)
		p.KillGroup()
		if exit := ended(t, p); exit.Signal != syscall.SIGKILL {
			t.Errorf("%s", exit)
		}
		dies(t, child)
		p.KillGroup() // does nothing
	})
	t.Run("stopped", func(t *testing.T) {
		p, out := shell(t, `sleep 1000 & echo $!; kill -STOP $!; kill -STOP $$; echo continued`, nil)
		child := pid(t, out)
		p.KillGroup()
		ended(t, p)
		dies(t, child)
	})
	t.Run("from many goroutines", func(t *testing.T) {
		p, _ := shell(t, `sleep 0.01`, nil)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				for range 50 {
					p.KillGroup()
				}
			})
		}
		group.Wait()
		ended(t, p)
	})
}

func TestEnd(t *testing.T) {
	p, _ := shell(t, `sleep 0.02; exit 4`, nil)
	if !p.End(5*time.Second) || p.Exit().Code != 4 {
		t.Errorf("by itself: %s", p.Exit())
	}
	p, _ = shell(t, `sleep 1000`, nil)
	if p.End(20*time.Millisecond) || p.Exit().Signal != syscall.SIGKILL {
		t.Errorf("killed: %s", p.Exit())
	}
	if p.End(0); p.Exit().Signal != syscall.SIGKILL {
		t.Errorf("again: %s", p.Exit())
	}
}

// Killing the first of a chain of three ends all of them.
func TestDieWithParent(t *testing.T) {
	p, out := startReading(t, role("chain 2", nil))
	first, second, third := pid(t, out), pid(t, out), pid(t, out)
	if first != p.Pid() {
		t.Errorf("process %d says that it is %d", p.Pid(), first)
	}
	_ = syscall.Kill(first, syscall.SIGKILL) // not its group: each has its own
	ended(t, p)
	dies(t, second, third)
}

// The parent-death signal is tied to a thread: the child must outlive threads that exit.
func TestChildOutlivesThreads(t *testing.T) {
	p, _ := startReading(t, role("sleep", nil))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			runtime.Gosched()
		})
	}
	group.Wait()
	runtime.GC()
	select {
	case <-p.Done():
		t.Errorf("the child died: %s", p.Exit())
	case <-time.After(50 * time.Millisecond):
	}
}

// Programs that a kernel starts must end when the kernel terminates them.
func TestStopSignalsEndWhatIsStarted(t *testing.T) {
	_, out := startReading(t, unignored(t, role("survivor", nil)))
	for _, want := range []string{"TERM signal: terminated", "INT signal: interrupt", "HUP signal: hangup", "PIPE signal: broken pipe"} {
		if got := line(t, out); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// Under nohup, SIGHUP stays ignored, also in child processes.
func TestNohupIsInherited(t *testing.T) {
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip("SKIPPED: no nohup")
	}
	command := role("survivor", nil)
	command.Args = append([]string{command.Path}, command.Args...)
	command.Path = nohup
	_, out := startReading(t, unignored(t, command))
	for _, want := range []string{"TERM signal: terminated", "INT signal: interrupt", "HUP <nil>"} {
		if got := line(t, out); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// unignored returns the command with default actions for all signals, even if the tests
// themselves run under nohup or in the background of a shell.
func unignored(t *testing.T, command Command) Command {
	t.Helper()
	env, err := exec.LookPath("env")
	if err != nil || exec.Command(env, "--default-signal", "true").Run() != nil {
		return command
	}
	command.Args = append([]string{"--default-signal", command.Path}, command.Args...)
	command.Path = env
	return command
}

func TestSurviveStopSignals(t *testing.T) {
	p, out := startReading(t, role("stubborn", nil))
	if got := line(t, out); got != "still here" {
		t.Errorf("it said %q", got)
	}
	if exit := ended(t, p); exit.Code != 0 {
		t.Errorf("%s", exit)
	}
}

func TestCloseOnExec(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // inherited, as it is
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	script := fmt.Sprintf(`test -e /proc/self/fd/%d && echo open || echo closed`, fd)
	_, before := shell(t, script, nil)
	if got := line(t, before); got != "open" {
		t.Skipf("the descriptor is %s in a child anyway", got)
	}
	CloseOnExec(fd)
	_, after := shell(t, script, nil)
	if got := line(t, after); got != "closed" {
		t.Errorf("the descriptor is %s in a child", got)
	}
}

func TestAffinity(t *testing.T) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	last := 0
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			last = cpu
		}
	}
	mine := cpus(t, "self")
	for _, test := range []struct {
		name string
		cpus []int
		want string
	}{
		{"none", nil, mine},
		{"one", []int{last}, fmt.Sprint(last)},
		{"some not there", []int{last, 1000}, fmt.Sprint(last)},
		{"none there", []int{1000, 1001}, mine},
	} {
		p, out := shell(t, `echo ready; sleep 1000`, func(c *Command) { c.CPUs = test.cpus })
		line(t, out)
		if got := cpus(t, fmt.Sprint(p.Pid())); got != test.want {
			t.Errorf("%s: it runs on %s, not %s", test.name, got, test.want)
		}
	}
	if got := cpus(t, "self"); got != mine {
		t.Errorf("this process runs on %s now, before on %s", got, mine)
	}
	p, out := shell(t, `echo ready; sleep 1000`, nil)
	line(t, out)
	if got := cpus(t, fmt.Sprint(p.Pid())); got != mine {
		t.Errorf("the next child runs on %s", got)
	}
}

func cpus(t *testing.T, pid string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}
