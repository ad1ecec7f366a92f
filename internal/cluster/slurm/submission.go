package slurm

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// defaultArraySize is Slurm's MaxArraySize unless a site has changed it.
const defaultArraySize = 1001

// PrintScript prints a script that submits all shards and the merge.
func (j Job) PrintScript(ctx context.Context, w io.Writer, output string) error {
	size, err := MaxArraySize(ctx)
	if err != nil {
		size = defaultArraySize // printed on another machine
	}
	indices := make([]int, j.Shards)
	for i := range indices {
		indices[i] = i
	}
	return scripts().ExecuteTemplate(w, "submit.sh.tmpl", struct {
		Job
		Output string
		Arrays []Array
	}{j, output, Split(indices, size)})
}

// Submission submits what is missing of a run.
type Submission struct {
	Job Job
	Run *cluster.Run
	// ArraySize is the number of tasks that an array may have; see MaxArraySize.
	ArraySize int
	// Out gets a line for each thing that was submitted.
	Out io.Writer
}

// queued is what Slurm still has of earlier submissions.
type queued struct {
	shards map[int]bool
	jobs   []string // array jobs
	merges []string
}

// Submit submits the shards that are neither done nor in the queue, and the merge.
func (s *Submission) Submit(ctx context.Context) error {
	overview, err := s.Run.Watch(0).Overview(ctx)
	if err != nil {
		return err
	}
	if overview.Merged {
		fmt.Fprintf(s.Out, "nothing to submit: the run is finished, and %s is merged\n", s.Run.Output)
		return nil
	}
	before, err := s.queued(ctx)
	if err != nil {
		return err
	}
	missing := cluster.Missing(overview.Shards)
	fmt.Fprintf(s.Out, "run      %s: %s\n", s.Run.Dir, runText(s.Run, len(missing)))
	wanted := slices.DeleteFunc(slices.Clone(missing), func(i int) bool { return before.shards[i] })
	if len(wanted) == 0 && len(before.merges) > 0 {
		fmt.Fprintf(s.Out, "nothing to submit: Slurm's queue has %s\n", jobsText(append(before.jobs, before.merges...)))
		return nil
	}
	if n := len(missing) - len(wanted); n > 0 {
		fmt.Fprintf(s.Out, "queued   %s in Slurm's queue already: %s\n", shards(n), jobsText(before.jobs))
	}
	return s.submitShards(ctx, wanted, before)
}

// submitShards submits arrays for shards, and a merge after all arrays of the run.
func (s *Submission) submitShards(ctx context.Context, indices []int, before queued) error {
	stamp := time.Now().UTC().Format("20060102T150405.000")
	if err := os.MkdirAll(s.Job.Logs, files.PrivateDirMode); err != nil {
		return fault.Slurm.New("create the folder of scripts and logs: %w", err)
	}
	record := Record{Created: time.Now()}
	submitted := s.submitArrays(ctx, indices, stamp, &record)
	if submitted == nil {
		record.Merge, submitted = s.submitMerge(ctx, append(before.jobs, record.Jobs()...), stamp, before.merges)
	}
	if len(record.Arrays) == 0 && record.Merge == "" {
		return submitted
	}
	if err := s.record(record, stamp); err != nil {
		return err
	}
	if submitted != nil {
		return submitted
	}
	fmt.Fprintf(s.Out, "logs     %s\n", s.Job.Logs)
	fmt.Fprintf(s.Out, "follow   gpurun submit status %s --watch\n", Quote(s.Run.Output))
	return nil
}

// submitArrays submits arrays for shards. Each is recorded at once: if this process is killed,
// the same command submits only the others.
func (s *Submission) submitArrays(ctx context.Context, indices []int, stamp string, record *Record) error {
	for i, array := range Split(indices, s.ArraySize) {
		path := filepath.Join(s.Job.Logs, fmt.Sprintf("%s-%d.sh", stamp, i))
		script := s.Job.ArrayScript(array)
		if err := files.WriteDurably(path, []byte(script), files.PrivateMode); err != nil {
			return err
		}
		id, err := Submit(ctx, script)
		if err != nil {
			return err
		}
		crash.Point("array-submitted")
		record.Arrays = append(record.Arrays, Submitted{Job: id, Offset: array.Offset, Script: path})
		if err := s.record(*record, stamp); err != nil {
			return err
		}
		crash.Point("array-recorded")
		fmt.Fprintf(s.Out, "array    job %s: %s, %s\n", id, tasksText(array), s.tasksAtOnce())
	}
	return nil
}

// record notes what Slurm has got.
func (s *Submission) record(record Record, stamp string) error {
	if err := files.WriteJSON(filepath.Join(s.Job.Logs, stamp+".json"), record, files.PrivateMode); err != nil {
		return fault.Slurm.New("record the submitted jobs: %w", err)
	}
	return nil
}

// submitMerge submits the merge, in the place of earlier ones that have not started.
func (s *Submission) submitMerge(ctx context.Context, after []string, stamp string, replaced []string) (string, error) {
	script := s.Job.MergeScript()
	if err := files.WriteDurably(filepath.Join(s.Job.Logs, stamp+"-merge.sh"), []byte(script), files.PrivateMode); err != nil {
		return "", fault.Slurm.New("write the script of the merge: %w", err)
	}
	var options []string
	when := "at once"
	if len(after) > 0 {
		// However they end: a failed or requeued task must not prevent the merge.
		options, when = []string{"--dependency=afterany:" + strings.Join(after, ":")}, "after "+jobsText(after)
	}
	id, err := Submit(ctx, script, options...)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(s.Out, "merge    job %s: %s\n", id, when)
	return id, CancelPending(ctx, replaced)
}

// queued returns what Slurm still has of the run.
func (s *Submission) queued(ctx context.Context) (q queued, err error) {
	records, err := Records(s.Job.Logs)
	if err != nil {
		return q, err
	}
	offsets := make(map[string]int)
	merges := make(map[string]bool)
	var jobs []string
	for _, record := range records {
		for _, array := range record.Arrays {
			offsets[array.Job] = array.Offset
			jobs = append(jobs, array.Job)
		}
		if record.Merge != "" {
			merges[record.Merge] = true
			jobs = append(jobs, record.Merge)
		}
	}
	tasks, err := Live(ctx, jobs)
	if err != nil {
		return q, err
	}
	q.shards = make(map[int]bool)
	for _, task := range tasks {
		switch {
		case merges[task.Job]:
			q.merges = append(q.merges, task.Job)
		case task.Index >= 0:
			q.shards[offsets[task.Job]+task.Index] = true
			if !slices.Contains(q.jobs, task.Job) {
				q.jobs = append(q.jobs, task.Job)
			}
		}
	}
	return q, nil
}

func (s *Submission) tasksAtOnce() string {
	text := fmt.Sprintf("at most %d at a time", s.Job.Nodes)
	if s.Job.GPUsPerNode > 0 {
		text += fmt.Sprintf(", %d GPUs each", s.Job.GPUsPerNode)
	}
	return text
}

func jobsText(jobs []string) string {
	if len(jobs) == 1 {
		return "job " + jobs[0]
	}
	return "jobs " + strings.Join(jobs, ", ")
}

func tasksText(a Array) string {
	first := a.Offset + a.Tasks[0]
	if len(a.Tasks) == 1 {
		return fmt.Sprintf("1 task, shard %d", first)
	}
	return fmt.Sprintf("%d tasks, shards %d to %d", len(a.Tasks), first, a.Offset+a.Tasks[len(a.Tasks)-1])
}

// runText describes a run.
func runText(run *cluster.Run, missing int) string {
	_, size := run.Range(0)
	text := fmt.Sprintf("%s of %d records", shards(run.Shards), size)
	if done := run.Shards - missing; done > 0 {
		text += fmt.Sprintf(", %d done", done)
	}
	return text
}

func shards(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

// CheckIdle reports why a run cannot be corrected; nil if it can.
func (s *Submission) CheckIdle(ctx context.Context, run *cluster.Run) error {
	overview, err := run.Watch(0).Overview(ctx)
	if err != nil {
		return err
	}
	q, err := s.queued(ctx)
	if err != nil {
		return err
	}
	if jobs := append(q.jobs, q.merges...); len(jobs) > 0 {
		return fault.OtherRun.New("Slurm's queue has %s: run scancel %s first", jobsText(jobs), strings.Join(jobs, " "))
	}
	return overview.CheckIdle()
}
