package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/cluster/slurm"
	"github.com/gpurun/gpurun/internal/fault"
)

// slurmTask is this process as a task of an array job of Slurm; nil if it is none.
type slurmTask struct {
	job      string // as Slurm's programs take it
	restarts int
}

// taskRestarts is how often a task returns to the queue after a failure that may be the
// node's.
const taskRestarts = 3

// slurmTask returns nil unless a task of an array computes the shard: to requeue another
// job would end, for example, the interactive job of a user.
func (o shardOptions) slurmTask() *slurmTask {
	job := os.Getenv("SLURM_JOB_ID")
	if job == "" || os.Getenv("SLURM_ARRAY_TASK_ID") == "" || !strings.HasPrefix(o.Shard, "auto") {
		return nil
	}
	restarts, _ := strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT")) // unset at first
	return &slurmTask{job: job, restarts: restarts}
}

// stopSignals are the signals that stop the job, besides those that always do. Slurm sends
// SIGUSR1 before a task reaches its time limit.
func (o shardOptions) stopSignals() []os.Signal {
	if o.slurmTask() == nil {
		return nil
	}
	return []os.Signal{syscall.SIGUSR1}
}

// finish is called when the task has no more work, or cannot continue. It returns the task
// to the queue if another start can help. When all shards are done, it removes the tasks
// that have not started, so that the merge does not wait for nodes that they do not need.
func (t *slurmTask) finish(run *cluster.Run, outcome cluster.Outcome, stopped *syscall.Signal, err error) error {
	ctx := context.Background() // the job's own may have been canceled
	switch {
	case t == nil:
	case outcome.Complete:
		t.cancelRest(ctx, run)
	case t.shouldRequeue(stopped, err):
		if failed := slurm.Requeue(ctx, t.job); failed != nil {
			return &hinted{err: err, hint: fmt.Sprintf("; the task could not be returned to Slurm's queue: %v", failed)}
		}
		fmt.Fprintf(os.Stderr, "gpurun: returned task %s to Slurm's queue\n", t.job)
	}
	return err
}

// shouldRequeue: the time limit is near, or the task failed for a reason that may be the
// node's. Slurm itself requeues a task that it has ended.
func (t *slurmTask) shouldRequeue(stopped *syscall.Signal, err error) bool {
	switch {
	case err == nil:
		return false
	case stopped != nil:
		return *stopped == syscall.SIGUSR1
	}
	switch fault.KindOf(err) {
	case fault.NoDevice, fault.Device, fault.Storage:
		return t.restarts < taskRestarts
	}
	return false
}

// cancelRest removes the tasks that would find nothing to do.
func (t *slurmTask) cancelRest(ctx context.Context, run *cluster.Run) {
	records, err := slurm.Records(slurmFolder(run.Output))
	if err != nil {
		return // the merge waits for them
	}
	for _, record := range records {
		_ = slurm.CancelPending(ctx, record.Jobs()) // they end soon after they start
	}
}

// slurmFolder is where scripts, logs and records of submissions are.
func slurmFolder(output string) string { return filepath.Join(cluster.Folder(output), "slurm") }
