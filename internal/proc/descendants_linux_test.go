package proc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// family is a script that leaves a plain child, and one in its own session that has another
// such child. It prints the pids and then runs the rest of the script.
const family = `
	sleep 1000 & echo $!
	setsid sh -c 'echo $$; setsid sh -c "echo \$\$; exec sleep 1000" & exec sleep 1000' &
`

func noChildren(t *testing.T, except ...int) {
	t.Helper()
	left := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool { return slices.Contains(except, pid) })
	if len(left) > 0 {
		t.Errorf("children left, or not reaped: %v", left)
	}
}

func TestKillChildren(t *testing.T) {
	t.Run("orphans", func(t *testing.T) {
		p, out := shell(t, family+`sleep 0.2; exit 0`, nil)
		pids := []int{pid(t, out), pid(t, out), pid(t, out)}
		ended(t, p)
		KillChildren()
		dies(t, pids...)
		noChildren(t)
	})
	t.Run("with their parent", func(t *testing.T) {
		p, out := shell(t, family+`wait; sleep 1000`, nil)
		pids := []int{pid(t, out), pid(t, out), pid(t, out)}
		KillChildren()
		// A child started here keeps its exit status.
		if exit := ended(t, p); exit.Signal != syscall.SIGKILL {
			t.Errorf("%s", exit)
		}
		dies(t, pids...)
		noChildren(t)
	})
	t.Run("but one", func(t *testing.T) {
		kept, _ := shell(t, `sleep 1000`, nil)
		other, _ := shell(t, `sleep 1000`, nil)
		KillChildren(kept.Pid())
		ended(t, other)
		if !alive(kept.Pid()) {
			t.Error("the kept child is gone")
		}
		noChildren(t, kept.Pid())
	})
	t.Run("stopped", func(t *testing.T) {
		p, out := shell(t, `setsid sh -c 'echo $$; kill -STOP $$; sleep 1000' & sleep 0.1; exit 0`, nil)
		stopped := pid(t, out)
		ended(t, p)
		KillChildren()
		dies(t, stopped)
	})
	t.Run("none", func(t *testing.T) {
		begin := time.Now()
		KillChildren()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestKillMarked(t *testing.T) {
	mark := fmt.Sprintf("GPURUN_TEST_MARK=%d", os.Getpid())
	unmarked, _ := shell(t, `sleep 1000`, nil)
	p, out := shell(t, family+`wait`, func(c *Command) { c.Env = append(os.Environ(), mark) })
	pids := []int{pid(t, out), pid(t, out), pid(t, out)}
	// The leader dies first, and only its group with it.
	_ = syscall.Kill(p.Pid(), syscall.SIGKILL)
	ended(t, p)
	if found, _ := KillMarked(mark); found < 2 || found > 4 {
		t.Errorf("found %d", found)
	}
	dies(t, pids...)
	noChildren(t, unmarked.Pid())
	if !alive(unmarked.Pid()) {
		t.Error("a process without the mark is gone")
	}
	if found, _ := KillMarked(mark); found != 0 {
		t.Errorf("then found %d", found)
	}
}

// A child started by Start and killed by its mark keeps its exit status.
func TestKillMarkedOwned(t *testing.T) {
	mark := fmt.Sprintf("GPURUN_TEST_MARK=owned-%d", os.Getpid())
	p, out := shell(t, `echo ready; sleep 1000; true`, func(c *Command) { c.Env = append(os.Environ(), mark) })
	line(t, out)
	if found, _ := KillMarked(mark); found == 0 {
		t.Error("it was not found")
	}
	if exit := ended(t, p); exit.Signal != syscall.SIGKILL {
		t.Errorf("%s", exit)
	}
}

// A process that does not exit after SIGKILL blocks no caller forever: the wait returns the
// process, and a later call does not wait for it again.
func TestStuckProcessIsGivenUp(t *testing.T) {
	SetKillWait(50 * time.Millisecond)
	defer SetKillWait(10 * time.Second)
	mark := fmt.Sprintf("GPURUN_TEST_MARK=stuck-%d", os.Getpid())
	p, out := shell(t, `echo ready; read never`, func(c *Command) {
		c.Env = append(os.Environ(), mark)
		c.Stdin = neverEnding(t)
	})
	line(t, out)
	tracer := hold(t, p.Pid())
	p.KillGroup()
	if exit := ended(t, p); !exit.Stuck || exit.String() != "does not exit after SIGKILL" || p.End(time.Minute) {
		t.Errorf("%#v: %s", exit, exit)
	}
	for name, stuck := range map[string][]Stuck{
		"children": KillChildren(tracer.Process.Pid), "again": KillChildren(tracer.Process.Pid), "marked": second(KillMarked(mark)),
	} {
		if len(stuck) != 1 || stuck[0].PID != p.Pid() || !stuck[0].Lives() {
			t.Fatalf("%s: %v", name, stuck)
		}
		if got := stuck[0].String(); !strings.HasPrefix(got, fmt.Sprintf("process %d (", p.Pid())) || !strings.HasSuffix(got, " traces and holds it") {
			t.Errorf("%s: %q", name, got)
		}
	}
	stuck := describeStuck(p.Pid())
	_ = tracer.Process.Kill()
	dies(t, p.Pid())
	for deadline := time.Now().Add(5 * time.Second); stuck.Lives(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is said to live")
		}
	}
}

// hold lets another process hold one: a parent would see its own child stop.
func hold(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	tracer := exec.Command(os.Args[0], strconv.Itoa(pid))
	tracer.Env, tracer.Stdin = append(os.Environ(), roleVariable+"=tracer"), neverEnding(t)
	out, err := tracer.StdoutPipe()
	if err == nil {
		err = tracer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tracer.Process.Kill()
		_ = tracer.Wait()
	})
	if said := line(t, bufio.NewReader(out)); said != "held" {
		t.Skipf("NOT TESTED: a process that cannot be killed, since none can be traced here: %s", said)
	}
	return tracer
}

func second(_ int, stuck []Stuck) []Stuck { return stuck }

// neverEnding is a pipe without a writer.
func neverEnding(t *testing.T) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		read.Close()
		write.Close()
	})
	return read
}

// Orphans that this process adopts leave no zombies, and children that it started keep
// their exit status.
func TestOrphansAreReaped(t *testing.T) {
	stop := ReapOrphans()
	defer stop()
	p, out := shell(t, `for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'sleep 0.01 & exit 0'; sh -c 'setsid sleep 0.02 & exit 0'; done; echo done; sleep 1000`, nil)
	for range 20 {
		own, _ := shell(t, `exit 7`, nil)
		if exit := ended(t, own); exit.Code != 7 {
			t.Fatalf("a child's exit status was taken: %s", exit)
		}
	}
	line(t, out)
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool { return pid == p.Pid() })
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("children left, or not reaped: %v", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Only processes marked by a dead owner are killed: not those of a living owner, of an owner
// in another namespace, or with another value in the variable.
func TestKillAbandoned(t *testing.T) {
	variable := fmt.Sprintf("GPURUN_TEST_MARK_%d", os.Getpid())
	dead, _ := shell(t, `exit 0`, nil)
	ended(t, dead)
	self, pid, namespace := Self().Start, os.Getpid(), namespace()
	spared := make(map[string]*Process)
	for name, mark := range map[string]string{
		"a living owner":       NewMark(),
		"another namespace":    fmt.Sprintf("%d-%d-%s-x", dead.Pid(), self, "pid:[1]"),
		"no mark":              "0123456789abcdef",
		"a pid alone":          fmt.Sprintf("%d", dead.Pid()),
		"a mark without start": fmt.Sprintf("%d-0-%s-x", dead.Pid(), namespace),
	} {
		p, out := shell(t, `echo ready; sleep 1000`, func(c *Command) { c.Env = append(os.Environ(), variable+"="+mark) })
		line(t, out)
		spared[name] = p
	}
	var doomed []int
	for _, mark := range []string{
		fmt.Sprintf("%d-%d-%s-x", dead.Pid(), self, namespace), // exited
		fmt.Sprintf("%d-%d-%s-x", pid, self+1, namespace),      // its pid was reused
	} {
		p, out := shell(t, `setsid sleep 1000 & echo $!; sleep 1000`, func(c *Command) { c.Env = append(os.Environ(), variable+"="+mark) })
		number, _ := strconv.Atoi(line(t, out))
		doomed = append(doomed, p.Pid(), number)
	}
	if found, stuck := KillAbandoned(variable); found < len(doomed) || len(stuck) > 0 {
		t.Errorf("found %d, stuck %v", found, stuck)
	}
	dies(t, doomed...)
	for name, p := range spared {
		if !alive(p.Pid()) {
			t.Errorf("%s: it was killed", name)
		}
	}
}

// A mark is a whole entry, not a part of one.
func TestMarkIsExact(t *testing.T) {
	mark := fmt.Sprintf("GPURUN_TEST_MARK=exact-%d", os.Getpid())
	p, out := shell(t, `echo ready; sleep 1000`, func(c *Command) {
		c.Env = append(os.Environ(), mark+"0", "X"+mark)
	})
	line(t, out)
	if found, _ := KillMarked(mark); found != 0 || !alive(p.Pid()) {
		t.Errorf("found %d", found)
	}
}

func TestStat(t *testing.T) {
	if ppid := stat(os.Getpid()).parent; ppid != os.Getppid() {
		t.Errorf("parent %d, not %d", ppid, os.Getppid())
	}
	if s := stat(1 << 30); s != (status{}) {
		t.Errorf("a process that is not there: %+v", s)
	}
	// A name with spaces and parentheses.
	dir := t.TempDir()
	path := dir + "/a) S 1 ("
	if err := os.Symlink("/bin/sleep", path); err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Path: path, Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.KillGroup(); <-p.Done() }()
	if ppid := stat(p.Pid()).parent; ppid != os.Getpid() {
		t.Errorf("parent %d", ppid)
	}
}

func TestIsDescendant(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var grandchild int
	if _, err := fmt.Fscan(out, &grandchild); err != nil {
		t.Fatal(err)
	}
	if !IsDescendant(grandchild, os.Getpid()) || !IsDescendant(cmd.Process.Pid, os.Getpid()) {
		t.Error("a grandchild is no descendant")
	}
	if IsDescendant(os.Getpid(), cmd.Process.Pid) || IsDescendant(os.Getpid(), os.Getpid()) || IsDescendant(1<<30, os.Getpid()) {
		t.Error("who is no descendant is one")
	}
	_ = syscall.Kill(grandchild, syscall.SIGKILL)
	_ = cmd.Wait()
}
