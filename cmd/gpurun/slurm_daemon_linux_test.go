package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is a process of Slurm that stays in the foreground.
type slurmDaemon struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func (c *slurmCluster) start(name, program string, args ...string) {
	c.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = c.Env()
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := os.OpenFile(filepath.Join(c.Dir, name+".out.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	d := &slurmDaemon{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(d.exited)
	}()
	c.procs[name] = d
}

// mustLive fails the test if a daemon has exited: Slurm's slurmPrograms would wait long for it.
func (c *slurmCluster) mustLive() {
	c.t.Helper()
	for name, d := range c.procs {
		select {
		case <-d.exited:
			c.t.Fatalf("%s exited: %s\n%s", name, d.cmd.ProcessState, c.logs())
		default:
		}
	}
}

// StartNode starts the daemon of a node.
func (c *slurmCluster) StartNode(node string) {
	c.t.Helper()
	c.start(node, "slurmd", "-D", "-N", node)
}

// LoseDaemon kills the daemon of a node. Its jobs keep running: the node only looks dead.
func (c *slurmCluster) LoseDaemon(node string) {
	c.t.Helper()
	d := c.procs[node]
	_ = d.cmd.Process.Kill()
	<-d.exited
	delete(c.procs, node)
}

// LoseNode kills the daemon of a node and everything that runs there, like a power failure.
func (c *slurmCluster) LoseNode(node string) {
	c.t.Helper()
	c.LoseDaemon(node)
	c.signal(node, unix.SIGKILL)
}

// Down makes Slurm give up a node now, as a health check of a site would; Slurm itself
// takes half a minute to notice that a daemon is gone.
func (c *slurmCluster) Down(node string) {
	c.t.Helper()
	c.Run("scontrol", "update", "nodename="+node, "state=down", "reason=lost")
}

// Freeze stops the daemon of a node and everything that runs there; Thaw resumes them.
func (c *slurmCluster) Freeze(node string) { c.signal(node, unix.SIGSTOP) }

// Thaw ends a Freeze.
func (c *slurmCluster) Thaw(node string) { c.signal(node, unix.SIGCONT) }

// signal signals every process of a node, again until there are no new ones.
func (c *slurmCluster) signal(node string, sig syscall.Signal) {
	seen := make(map[int]bool)
	for again := true; again; {
		again = false
		for _, pid := range c.processes(node) {
			if !seen[pid] {
				seen[pid], again = true, true
				_ = unix.Kill(pid, sig)
			}
		}
	}
}

// processes returns the processes of a node: its daemon, then the daemons of its job steps,
// then the jobs themselves, so that none can report the end of one below it. An empty node
// stands for all of them.
func (c *slurmCluster) processes(node string) []int {
	var daemons, steps, jobs []int
	if d := c.procs[node]; d != nil {
		daemons = append(daemons, d.cmd.Process.Pid)
	}
	conf := []byte("SLURM_CONF=" + filepath.Join(c.Dir, "slurm.conf"))
	found, _ := os.ReadDir("/proc")
	for _, entry := range found {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		variables := bytes.Split(environ, []byte{0})
		if !contains(variables, conf) || node != "" && !contains(variables, []byte("SLURMD_NODENAME="+node)) {
			continue
		}
		jobs = append(jobs, pid)
		if step := parent(pid); strings.HasPrefix(slurmCommand(step), "slurmstepd") {
			steps = append(steps, step)
		}
	}
	return append(append(daemons, steps...), jobs...)
}

// slurmCommand returns the short name of a process.
func slurmCommand(pid int) string {
	name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return strings.TrimSpace(string(name))
}

// parent returns the parent of a process; 0 if it has exited.
func parent(pid int) int {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.Atoi(fields[1])
	return id
}

func contains(list [][]byte, entry []byte) bool {
	for _, one := range list {
		if bytes.Equal(one, entry) {
			return true
		}
	}
	return false
}

// Survivors lists the processes that jobs of this cluster have left behind.
func (c *slurmCluster) Survivors() (left []string) {
	for _, pid := range c.processes("") {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		name := strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
		if err != nil || name == "" || strings.HasPrefix(slurmCommand(pid), "slurm") {
			continue // exited, or part of Slurm
		}
		left = append(left, strconv.Itoa(pid)+" "+name)
	}
	return left
}

// stop ends everything that the cluster started.
func (c *slurmCluster) stop() {
	c.signal("", unix.SIGCONT)
	c.signal("", unix.SIGKILL)
	for _, d := range c.procs {
		_ = d.cmd.Process.Kill()
		select {
		case <-d.exited:
		case <-time.After(5 * time.Second):
		}
	}
	_ = os.RemoveAll(c.Dir)
}

// makeDevice creates the device file of a simulated GPU.
func makeDevice(path string, number int) error {
	return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(number))))
}
