package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/fault"
)

// TestSlurmTaskIsOfAnArray: only a task whose shard is its index may requeue its job.
func TestSlurmTaskIsOfAnArray(t *testing.T) {
	for name, one := range map[string]struct {
		shard, job, index string
		want              bool
	}{
		"a task":              {"auto/16", "7", "3", true},
		"a shard by hand":     {"3/16", "7", "3", false},
		"an interactive job":  {"auto/16", "7", "", false},
		"outside of Slurm":    {"auto", "", "3", false},
		"not a job of shards": {"", "7", "3", false},
	} {
		t.Setenv("SLURM_JOB_ID", one.job)
		t.Setenv("SLURM_ARRAY_TASK_ID", one.index)
		f := &shardOptions{Shard: one.shard}
		if got := f.slurmTask() != nil; got != one.want || (len(f.stopSignals()) > 0) != one.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSlurmRequeue: a task returns to the queue only if another start can help.
func TestSlurmRequeue(t *testing.T) {
	term, user := syscall.SIGTERM, syscall.SIGUSR1
	stopped := fault.New(fault.Canceled, "stopped")
	lost := fault.New(fault.NoDevice, "no GPU")
	for name, one := range map[string]struct {
		err      error
		stopped  *syscall.Signal
		restarts string
		complete bool
		want     string
	}{
		"done":                   {nil, nil, "", false, ""},
		"near the time limit":    {stopped, &user, "", false, "requeue 7"},
		"again near it":          {stopped, &user, "9", false, "requeue 7"},
		"finished in spite":      {nil, &user, "", false, ""},
		"preempted or canceled":  {stopped, &term, "", false, ""},
		"no GPU on this node":    {lost, nil, "", false, "requeue 7"},
		"still none":             {lost, nil, "3", false, ""},
		"a full disk":            {fault.New(fault.Storage, "full"), nil, "1", false, "requeue 7"},
		"the kernel is unusable": {fault.New(fault.Incompatible, "typo"), nil, "", false, ""},
		"a mistake":              {fault.BadValue.New("no input"), nil, "", false, ""},
		"all shards are done":    {nil, nil, "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			calls := filepath.Join(dir, "calls")
			if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\necho \"$@\" >> "+calls+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			t.Setenv("SLURM_JOB_ID", "7")
			t.Setenv("SLURM_ARRAY_TASK_ID", "3")
			t.Setenv("SLURM_RESTART_COUNT", one.restarts)
			run := &cluster.Run{}
			run.Output = filepath.Join(dir, "out.jsonl")
			task := (&shardOptions{Shard: "auto/16"}).slurmTask()
			if err := task.finish(run, cluster.Outcome{Complete: one.complete}, one.stopped, one.err); !errors.Is(err, one.err) {
				t.Errorf("the error became %v", err)
			}
			got, _ := os.ReadFile(calls)
			if strings.TrimSpace(string(got)) != one.want {
				t.Errorf("called scontrol %q, want %q", got, one.want)
			}
		})
	}
}
