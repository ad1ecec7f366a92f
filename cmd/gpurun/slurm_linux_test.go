package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/cluster"
)

// slurmKernel takes a while for each batch, longer on the node that SLOW_NODE names. What
// it returns depends on the record alone.
const slurmKernel = `import os, time

slow = os.environ.get("SLURMD_NODENAME") == os.environ.get("SLOW_NODE", "-")
pause = float(os.environ.get("PAUSE", "0")) * (5 if slow else 1)

def process(batch):
    time.sleep(pause)
    return [dict(record, square=record["id"] ** 2) for record in batch]
`

// slurmJob is a job on a real Slurm whose nodes share a folder.
type slurmJob struct {
	*slurmCluster
	t       *testing.T
	dir     string
	program string
	env     []string
	args    []string
	output  string // a file, or a folder of parts
	want    []byte
}

// newSlurmJob starts a Slurm and computes on one machine what the job must produce.
func newSlurmJob(t *testing.T, records int, pause time.Duration) *slurmJob {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: no python3")
	}
	j := &slurmJob{slurmCluster: startSlurm(t), t: t, output: "out.jsonl"}
	j.dir = filepath.Join(j.Dir, "shared")
	if err := os.Mkdir(j.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	j.program = filepath.Join(j.dir, "gpurun")
	if err := os.Symlink(program, j.program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.dir, "kernel.py"), []byte(slurmKernel), 0o644); err != nil {
		t.Fatal(err)
	}
	writeRecords(t, filepath.Join(j.dir, "in.jsonl"), records)
	j.env = append(j.Env(), "GPURUN_TEST_COMMAND=1")
	j.args = []string{"-k", "kernel.py", "in.jsonl", "--gpus", "cpu:1", "--batch-size", "10", "--checkpoint", "1s"}
	j.gpurun(0, append([]string{"run", "-o", "one.jsonl"}, j.args...)...)
	var err error
	if j.want, err = os.ReadFile(filepath.Join(j.dir, "one.jsonl")); err != nil {
		t.Fatal(err)
	}
	j.env = append(j.env, fmt.Sprintf("PAUSE=%g", pause.Seconds()), "GPURUN_CLAIM_AFTER=4s")
	return j
}

// gpurun runs a command in the shared folder and returns what it prints.
func (j *slurmJob) gpurun(status int, args ...string) string {
	j.t.Helper()
	cmd := exec.Command(j.program, args...)
	cmd.Dir, cmd.Env = j.dir, j.env
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		j.t.Fatalf("gpurun %s: %v, status %d, want %d\n%s", strings.Join(args, " "), err, got, status, out)
	}
	return string(out)
}

// submit submits the job. Each task gets a whole node.
func (j *slurmJob) submit(args ...string) string {
	j.t.Helper()
	args = append([]string{"submit", "slurm", "--nodes", "2", "--gpurun", j.program, "--sbatch", "--exclusive", "-o", j.output}, args...)
	return j.gpurun(0, append(args, j.args...)...)
}

// shards returns a path in the run folder.
func (j *slurmJob) shards(names ...string) string {
	return filepath.Join(append([]string{cluster.Folder(filepath.Join(j.dir, j.output))}, names...)...)
}

// logsText returns the logs of all tasks.
func (j *slurmJob) logsText() string {
	var b strings.Builder
	paths, _ := filepath.Glob(j.shards("slurm", "*.log"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(path), text)
	}
	return b.String()
}

// check waits for the queue to empty, and compares the output with that of one machine.
func (j *slurmJob) check(within time.Duration) {
	j.t.Helper()
	j.Drained(within)
	paths := []string{filepath.Join(j.dir, j.output)}
	if strings.HasSuffix(j.output, "/") {
		paths, _ = filepath.Glob(filepath.Join(paths[0], "part-*"))
	}
	var got []byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			j.t.Fatalf("%v\n%s", err, j.logsText())
		}
		got = append(got, data...)
	}
	if !bytes.Equal(got, j.want) {
		j.t.Fatalf("the output differs from that of one machine: %d bytes, want %d\n%s", len(got), len(j.want), j.logsText())
	}
	j.Until("no process left", 10*time.Second, func() bool { return len(j.Survivors()) == 0 })
}

// started waits until the tasks on both nodes have results.
func (j *slurmJob) started() {
	j.t.Helper()
	j.Until("both nodes compute", 60*time.Second, func() bool {
		beats, _ := filepath.Glob(j.shards("attempts", "*", "out.jsonl.gpurun", "journal*"))
		return len(beats) >= 2 && len(j.Running("n1")) > 0 && len(j.Running("n2")) > 0
	})
}

// TestSlurmNodeLost is the short test of make test: a node dies in the middle of its shard.
func TestSlurmNodeLost(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, 1200, 50*time.Millisecond)
	j.submit("--shards", "4")
	j.started()
	j.LoseNode("n2")
	j.Down("n2")
	j.check(90 * time.Second)
}

// slow skips a test that make slurm-test runs.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("GPURUN_SLURM") == "" {
		t.Skip("slow; make slurm-test runs it")
	}
}

func TestSlurmShards(t *testing.T) {
	slow(t)
	for shards, output := range map[string]string{"8": "out.jsonl", "40": "out/"} {
		t.Run(shards, func(t *testing.T) {
			j := newSlurmJob(t, 2000, 10*time.Millisecond)
			j.output = output
			out := j.submit("--shards", shards)
			for _, text := range []string{shards + " shards of", "array", "merge", "follow"} {
				if !strings.Contains(out, text) {
					t.Errorf("submit does not print %q:\n%s", text, out)
				}
			}
			j.check(2 * time.Minute)
			if out := j.submit("--shards", shards); !strings.Contains(out, "finished") {
				t.Errorf("submitted again: %s", out)
			}
		})
	}
}

// TestSlurmPrinted runs the script that --print prints. Its first tasks create the run.
func TestSlurmPrinted(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 600, 10*time.Millisecond)
	args := []string{"submit", "slurm", "--print", "--nodes", "2", "--shards", "4", "--gpurun", j.program, "--sbatch", "--exclusive", "-o", "out.jsonl"}
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Env, cmd.Stdin = j.dir, j.env, strings.NewReader(j.gpurun(0, append(args, j.args...)...))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "merge") {
		t.Fatalf("%v\n%s", err, out)
	}
	j.check(2 * time.Minute)
}

// TestSlurmTaskFails: the first start of two tasks exits with 1. Other tasks claim their
// shards.
func TestSlurmTaskFails(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 2000, 10*time.Millisecond)
	j.submit("--shards", "8", "--setup", j.failOnce(1, 6))
	j.check(2 * time.Minute)
}

// failOnce is a line of shell with which the first start of some tasks fails.
func (j *slurmJob) failOnce(tasks ...int) string {
	return fmt.Sprintf(`case " %s " in *" $SLURM_ARRAY_TASK_ID "*) mkdir %s/failed-$SLURM_ARRAY_TASK_ID 2>/dev/null && exit 1;; esac`,
		strings.Trim(fmt.Sprint(tasks), "[]"), j.dir)
}

// TestSlurmMissing: without claiming, two shards stay missing. The merge names them, and the
// same command submits them alone.
func TestSlurmMissing(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 2000, 10*time.Millisecond)
	again := []string{"--shards", "8", "--no-claim", "--setup", j.failOnce(3, 5)}
	j.submit(again...)
	j.Drained(2 * time.Minute)
	if text := j.logsText(); !strings.Contains(text, "--array=3,5 ") {
		t.Errorf("the merge does not print the command for shards 3 and 5:\n%s", text)
	}
	out := j.submit(again...)
	if !strings.Contains(out, "2 tasks, shards 3 to 5") {
		t.Errorf("submitted again:\n%s", out)
	}
	j.check(2 * time.Minute)
}

// TestSlurmDaemonLost: a node that only looks dead still computes its shard while Slurm
// starts the task on the other node.
func TestSlurmDaemonLost(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 3000, 50*time.Millisecond)
	j.submit("--shards", "4")
	j.started()
	j.LoseDaemon("n2")
	j.Until("Slurm gives up the node", 60*time.Second, func() bool { return len(j.Running("n2")) == 0 })
	j.StartNode("n2")
	j.check(2 * time.Minute)
}

// TestSlurmPreempted: a job of higher priority takes a node; Slurm requeues the task.
func TestSlurmPreempted(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 3000, 50*time.Millisecond)
	j.submit("--shards", "4")
	j.started()
	j.Run("sbatch", "--partition=high", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap", "sleep 5")
	j.check(2 * time.Minute)
	if text := j.logsText(); !strings.Contains(text, "stopping") {
		t.Errorf("no task was preempted:\n%s", text)
	}
}

// TestSlurmTimeLimit: Slurm warns tasks of their time limit; they save their results and
// return to the queue.
func TestSlurmTimeLimit(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 8000, 100*time.Millisecond)
	j.submit("--shards", "2", "--sbatch", "--time=2", "--sbatch", "--signal=B:USR1@100")
	j.check(5 * time.Minute)
	if text := j.logsText(); !strings.Contains(text, "to Slurm's queue") {
		t.Errorf("no task returned to the queue:\n%s", text)
	}
}

// TestSlurmClaiming reports how well a fast node and one that is five times slower share 64
// shards. Timing is a figure here, not a condition.
func TestSlurmClaiming(t *testing.T) {
	slow(t)
	const batches, pause = 64 * 8, 150 * time.Millisecond // of one node
	j := newSlurmJob(t, batches*10, pause)
	j.env = append(j.env, "SLOW_NODE=n2")
	j.submit("--shards", "64")
	j.check(3 * time.Minute)
	began, ended := j.computing()
	took, ideal := ended.Sub(began), batches*pause*5/6
	t.Logf("64 shards on two nodes, one five times slower: %s from the first claim to the last commit, %.0f %% of work / summed speed (%s)",
		took.Round(time.Second/10), 100*took.Seconds()/ideal.Seconds(), ideal)
}

// computing returns when the first shard was claimed and when the last was committed.
func (j *slurmJob) computing() (began, ended time.Time) {
	j.t.Helper()
	for folder, note := range map[string]func(time.Time){
		"claims": func(at time.Time) {
			if began.IsZero() || at.Before(began) {
				began = at
			}
		},
		"commits": func(at time.Time) {
			if at.After(ended) {
				ended = at
			}
		},
	} {
		entries, err := os.ReadDir(j.shards(folder))
		if err != nil {
			j.t.Fatal(err)
		}
		for _, entry := range entries {
			if info, err := entry.Info(); err == nil {
				note(info.ModTime())
			}
		}
	}
	return began, ended
}

// TestSlurmFrozenNode: a node freezes, the other computes its shard, then it wakes up.
func TestSlurmFrozenNode(t *testing.T) {
	slow(t)
	j := newSlurmJob(t, 2000, 50*time.Millisecond)
	j.submit("--shards", "2")
	j.started()
	j.Freeze("n2")
	commits := j.shards("commits", "*.json")
	j.Until("the other node computes both shards", 2*time.Minute, func() bool {
		found, _ := filepath.Glob(commits)
		return len(found) == 2
	})
	j.Thaw("n2")
	j.check(2 * time.Minute)
}

// TestSlurmGPUs: four tasks run at the same time, two on each node. Each uses the GPUs that
// Slurm gave it, so the tasks of a node share none.
func TestSlurmGPUs(t *testing.T) {
	slow(t)
	stub := nvmlStub(t)
	if stub == "" {
		t.Skip("SKIPPED: no stub of the NVIDIA library")
	}
	j := newSlurmJob(t, 400, 300*time.Millisecond)
	kernel := `import os, time

def process(batch):
    time.sleep(0.3)
    where = [os.environ[name] for name in ("SLURMD_NODENAME", "SLURM_ARRAY_TASK_ID", "CUDA_VISIBLE_DEVICES")]
    return [{"where": where} for record in batch]
`
	if err := os.WriteFile(filepath.Join(j.dir, "where.py"), []byte(kernel), 0o644); err != nil {
		t.Fatal(err)
	}
	j.env = append(j.env, "LD_LIBRARY_PATH="+stub, "NVMLSTUB_GPUS=4")
	j.gpurun(0, "submit", "slurm", "--nodes", "4", "--gpus-per-node", "2", "--shards", "4", "--no-claim", "--gpurun", j.program,
		"-k", "where.py", "in.jsonl", "-o", "out.jsonl", "--batch-size", "10", "--workers-per-gpu", "1")
	j.Drained(2 * time.Minute)
	text, err := os.ReadFile(filepath.Join(j.dir, "out.jsonl"))
	if err != nil {
		t.Fatalf("%v\n%s", err, j.logsText())
	}
	users := make(map[string]map[string]bool) // tasks by node and device
	for line := range strings.Lines(string(text)) {
		var record struct{ Where [3]string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		device := record.Where[0] + " " + record.Where[2]
		if users[device] == nil {
			users[device] = make(map[string]bool)
		}
		users[device][record.Where[1]] = true
	}
	if len(users) != 8 {
		t.Errorf("%d devices were used, want 8: %v", len(users), users)
	}
	for device, tasks := range users {
		if len(tasks) != 1 {
			t.Errorf("device %s was used by the tasks %v", device, tasks)
		}
	}
}
