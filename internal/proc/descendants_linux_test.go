package proc

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// family is a script that leaves a plain child, and one with a session of its own
// that has such a child again; it prints the pids and then does what follows.
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
		// A child that was started here keeps its exit status.
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
	// The leader dies first, and takes only its group along.
	_ = syscall.Kill(p.Pid(), syscall.SIGKILL)
	ended(t, p)
	if found := KillMarked(mark); found < 2 || found > 4 {
		t.Errorf("found %d", found)
	}
	dies(t, pids...)
	noChildren(t, unmarked.Pid())
	if !alive(unmarked.Pid()) {
		t.Error("a process without the mark is gone")
	}
	if found := KillMarked(mark); found != 0 {
		t.Errorf("then found %d", found)
	}
}

// A child of Start's that is swept by its mark keeps its exit status.
func TestKillMarkedOwned(t *testing.T) {
	mark := fmt.Sprintf("GPURUN_TEST_MARK=owned-%d", os.Getpid())
	p, out := shell(t, `echo ready; sleep 1000; true`, func(c *Command) { c.Env = append(os.Environ(), mark) })
	line(t, out)
	if found := KillMarked(mark); found == 0 {
		t.Error("it was not found")
	}
	if exit := ended(t, p); exit.Signal != syscall.SIGKILL {
		t.Errorf("%s", exit)
	}
}

// A mark is a whole entry, not a part of one.
func TestMarkIsExact(t *testing.T) {
	mark := fmt.Sprintf("GPURUN_TEST_MARK=exact-%d", os.Getpid())
	p, out := shell(t, `echo ready; sleep 1000`, func(c *Command) {
		c.Env = append(os.Environ(), mark+"0", "X"+mark)
	})
	line(t, out)
	if found := KillMarked(mark); found != 0 || !alive(p.Pid()) {
		t.Errorf("found %d", found)
	}
}

func TestStat(t *testing.T) {
	if _, ppid := stat(os.Getpid()); ppid != os.Getppid() {
		t.Errorf("parent %d, not %d", ppid, os.Getppid())
	}
	if state, ppid := stat(1 << 30); state != 0 || ppid != 0 {
		t.Errorf("a process that is not there: %c, %d", state, ppid)
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
	if _, ppid := stat(p.Pid()); ppid != os.Getpid() {
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
