package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// slurmNodes are the names of the nodes; slurmGPUs is how many each has.
var slurmNodes = []string{"n1", "n2"}

const slurmGPUs = 4

// slurmCluster is a running Slurm. Its methods fail the test instead of returning errors.
type slurmCluster struct {
	t     testing.TB
	Dir   string // holds everything that Slurm writes; nodes share it
	ports []int  // of the daemons
	procs map[string]*slurmDaemon
}

// slurmPrograms are what Slurm consists of, as far as tests need it.
var slurmPrograms = []string{"slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "scancel"}

// Find returns why Slurm cannot run here, "" if it can.
func findSlurm() string {
	if runtime.GOOS != "linux" {
		return "Slurm runs on Linux only"
	}
	if os.Getuid() != 0 {
		return "slurmd and the device files of simulated GPUs need root"
	}
	for _, name := range slurmPrograms {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (Debian: apt-get install slurm-wlm)"
		}
	}
	return ""
}

// Start starts a cluster that ends with the test. It skips the test where Slurm cannot run.
func startSlurm(t testing.TB) *slurmCluster {
	t.Helper()
	if missing := findSlurm(); missing != "" {
		t.Skip("SKIPPED: no Slurm: " + missing)
	}
	dir, err := os.MkdirTemp("/tmp", "gpurun-slurm-") // short: socket paths are limited
	if err != nil {
		t.Fatal(err)
	}
	c := &slurmCluster{t: t, Dir: dir, procs: make(map[string]*slurmDaemon)}
	t.Cleanup(c.stop)
	c.configure()
	c.start("slurmctld", "slurmctld", "-D", "-c")
	for _, node := range slurmNodes {
		c.StartNode(node)
	}
	c.waitIdle()
	return c
}

// configure writes the files that Slurm reads.
func (c *slurmCluster) configure() {
	c.t.Helper()
	host, err := os.Hostname()
	if err != nil {
		c.t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	for _, dir := range []string{"state", "spool", "dev"} {
		if err := os.Mkdir(filepath.Join(c.Dir, dir), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range slurmGPUs {
		if err := makeDevice(filepath.Join(c.Dir, "dev", fmt.Sprintf("nvidia%d", i)), i); err != nil {
			c.t.Skipf("SKIPPED: no Slurm: cannot create the device file of a simulated GPU: %v", err)
		}
	}
	c.ports = freePorts(c.t, 1+len(slurmNodes))
	var nodes strings.Builder
	for i, name := range slurmNodes {
		fmt.Fprintf(&nodes, "NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=8 RealMemory=2000 Gres=gpu:h200:%d\n", name, host, c.ports[1+i], slurmGPUs)
	}
	c.write("slurm.conf", fmt.Sprintf(configuration, host, c.ports[0], c.Dir, nodes.String()))
	c.write("gres.conf", fmt.Sprintf("NodeName=n[1-2] Name=gpu Type=h200 File=%s/dev/nvidia[0-%d]\n", c.Dir, slurmGPUs-1))
}

// configuration is slurm.conf: no authentication, and therefore no address but loopback; no
// accounting or control groups, and times that are short enough for tests.
const configuration = `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool/%%n
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd-%%n.pid
SlurmctldLogFile=%[3]s/slurmctld.log
SlurmdLogFile=%[3]s/slurmd-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=%[3]s/jobcomp.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=6
KillWait=4
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
MailProg=/bin/true
MpiDefault=none
%[4]sPartitionName=low Nodes=ALL Default=YES PriorityTier=1 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
`

func (c *slurmCluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Env is the environment in which Slurm's programs find this cluster.
func (c *slurmCluster) Env() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "SLURM_") || strings.HasPrefix(entry, "SBATCH_") || strings.HasPrefix(entry, "CUDA_VISIBLE_DEVICES=")
	})
	return append(env, "SLURM_CONF="+filepath.Join(c.Dir, "slurm.conf"))
}

// Run runs one of Slurm's programs and returns what it prints.
func (c *slurmCluster) Run(name string, args ...string) string {
	c.t.Helper()
	out, err := c.try(name, args...)
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, c.logs())
	}
	return out
}

func (c *slurmCluster) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.Env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// Until waits for a condition.
func (c *slurmCluster) Until(what string, within time.Duration, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(within); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %s: %s\n%s\n%s", within, what, c.queue(), c.logs())
		}
	}
}

// queue lists all jobs, for messages.
func (c *slurmCluster) queue() string {
	out, err := c.try("squeue", "-r", "-a", "-t", "all", "-o", "%i %T %N %r")
	if err != nil {
		return err.Error()
	}
	return out
}

// waitIdle waits until both nodes accept jobs.
func (c *slurmCluster) waitIdle() {
	c.t.Helper()
	c.Until("all nodes idle", 30*time.Second, func() bool {
		c.mustLive()
		out, err := c.try("sinfo", "-h", "-N", "-p", "low", "-o", "%t")
		return err == nil && out == strings.TrimSpace(strings.Repeat("idle\n", len(slurmNodes)))
	})
}

// Drained waits until no job is pending, running or completing.
func (c *slurmCluster) Drained(within time.Duration) {
	c.t.Helper()
	c.Until("no jobs in the queue", within, func() bool {
		out, err := c.try("squeue", "-h", "-r", "-o", "%i")
		return err == nil && out == ""
	})
}

// Running returns the ids of the jobs and array tasks that run on a node.
func (c *slurmCluster) Running(node string) []string {
	c.t.Helper()
	return strings.Fields(c.Run("squeue", "-h", "-r", "-t", "R", "-w", node, "-o", "%i"))
}

// logs returns the last lines of the daemons' logs.
func (c *slurmCluster) logs() string {
	var b strings.Builder
	found, _ := filepath.Glob(filepath.Join(c.Dir, "*.log"))
	for _, path := range found {
		text, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "%s:\n  %s\n", filepath.Base(path), strings.Join(lines[max(0, len(lines)-15):], "\n  "))
	}
	return b.String()
}

// freePorts returns ports of the loopback interface that nothing listens on.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
