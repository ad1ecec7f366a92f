package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// patience is how long a program of Slurm may take: a busy controller answers late.
const patience = time.Minute

// call runs one of Slurm's programs and returns what it prints.
func call(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fault.Slurm.New("%s is not in PATH: run this where Slurm's programs are installed, such as a login node", name)
	case ctx.Err() != nil:
		return "", fault.Slurm.Of(fault.Storage, "%s did not answer within %s: is Slurm's controller running?", name, patience)
	case err != nil:
		return "", fault.Slurm.New("%s failed: %s", name, cmp.Or(strings.TrimSpace(stderr.String()), err.Error()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

var maxArraySize = regexp.MustCompile(`(?m)^MaxArraySize\s*=\s*(\d+)`)

// MaxArraySize returns the number of task ids of an array: they are below it.
func MaxArraySize(ctx context.Context) (int, error) {
	text, err := call(ctx, "", "scontrol", "show", "config")
	if err != nil {
		return 0, err
	}
	match := maxArraySize.FindStringSubmatch(text)
	if match == nil {
		return 0, fault.Slurm.New("scontrol show config names no MaxArraySize")
	}
	size, err := strconv.Atoi(match[1])
	if err != nil || size < 2 {
		return 0, fault.Slurm.New("this Slurm has no array jobs: MaxArraySize is %s", match[1])
	}
	return size, nil
}

// Submit submits a script and returns the id of its job.
func Submit(ctx context.Context, script string, options ...string) (string, error) {
	text, err := call(ctx, script, "sbatch", append([]string{"--parsable"}, options...)...)
	if err != nil {
		return "", err
	}
	lines := strings.Split(text, "\n")
	id, _, _ := strings.Cut(lines[len(lines)-1], ";") // ID;CLUSTER
	if _, err := strconv.Atoi(id); err != nil {
		return "", fault.Slurm.New("sbatch printed no job id: %q", text)
	}
	return id, nil
}

// Task is a task of an array job that has not ended.
type Task struct {
	Job, State string
	Index      int
}

// Live returns the tasks of these array jobs that have not ended.
func Live(ctx context.Context, jobs []string) (tasks []Task, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	// With -j, squeue fails if a job is too old for Slurm to know.
	text, err := call(ctx, "", "squeue", "-h", "-r", "--me", "-o", "%F|%K|%T")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 3 || !slices.Contains(jobs, fields[0]) {
			continue
		}
		index, err := strconv.Atoi(fields[1])
		if err != nil {
			index = -1 // not an array
		}
		tasks = append(tasks, Task{Job: fields[0], Index: index, State: fields[2]})
	}
	return tasks, nil
}

// CancelPending removes the tasks of these jobs that have not started.
func CancelPending(ctx context.Context, jobs []string) error {
	if len(jobs) == 0 {
		return nil
	}
	_, err := call(ctx, "", "scancel", append([]string{"--quiet", "--state=PENDING"}, jobs...)...)
	return err
}

// Requeue returns a running job, or a task of an array, to the queue.
func Requeue(ctx context.Context, job string) error {
	_, err := call(ctx, "", "scontrol", "requeue", job)
	return err
}
