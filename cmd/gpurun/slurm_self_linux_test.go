package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestCluster runs a job that asks for GPUs, loses a node and gets it back.
func TestCluster(t *testing.T) {
	if os.Getenv("GPURUN_SLURM") == "" {
		t.Skip("slow; make slurm-test runs it")
	}
	c := startSlurm(t)
	if open := c.listeners(); len(open) > 0 {
		t.Errorf("Slurm, which runs without authentication here, listens on %q", open)
	}
	out := filepath.Join(c.Dir, "out")
	c.Run("sbatch", "--parsable", "--array=0-3%2", "--gpus-per-node=3", "--output="+out+".%a", "--requeue", "--open-mode=append",
		"--wrap", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS; exec sleep 2")
	c.Until("both nodes run", 30*time.Second, func() bool { return len(c.Running("n1"))+len(c.Running("n2")) == 2 })
	c.LoseNode("n2")
	c.Down("n2")
	c.Drained(60 * time.Second)
	for _, name := range []string{".0", ".1", ".2", ".3"} {
		text, err := os.ReadFile(out + name)
		if err != nil || !strings.Contains(string(text), " 0,1,2") {
			t.Errorf("task %s: %q, %v", name, text, err)
		}
	}
	if text, _ := os.ReadFile(out + ".1"); !strings.Contains(string(text), "n2 ") || !strings.Contains(string(text), "n1 ") {
		t.Errorf("the task of the lost node did not start again: %q", text)
	}
	if left := c.Survivors(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	c.StartNode("n2")
	c.waitIdle()
}

// listeners returns the addresses other than loopback on which the daemons listen.
func (c *slurmCluster) listeners() (open []string) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line) // number, local address, remote address, state
			address, port, _ := strings.Cut(fields[1], ":")
			if number, err := strconv.ParseUint(port, 16, 16); err == nil && fields[3] == "0A" && slices.Contains(c.ports, int(number)) && address != "0100007F" {
				open = append(open, fields[1])
			}
		}
	}
	return open
}
