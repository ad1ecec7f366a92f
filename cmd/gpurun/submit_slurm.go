package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/cluster/slurm"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/orchestrator"
)

const submitSlurmHelp = `Run a job on several nodes of a Slurm cluster: cut the input into shards, submit an array
job with a task per shard, and a job that merges the results when all tasks have ended.
Input, output, kernel and gpurun itself must be on storage that all nodes share.

  gpurun submit slurm --nodes 4 --gpus-per-node 8 -k embed.py in.jsonl -o out.jsonl
  gpurun submit slurm … --sbatch '--partition=gpu --time=4:00:00 --cpus-per-gpu=12'
  gpurun submit slurm … --setup 'module load cuda' --setup '. venv/bin/activate'
  gpurun submit slurm … --print > job.sh          read or edit it, then: bash job.sh
  gpurun submit status out.jsonl --watch

The kernel is checked before anything is submitted, and the scripts record the active
Python environment. Run the same command again to submit what is missing: shards that are
neither done nor in Slurm's queue. A corrected command replaces one of which no shard is
done. A node that has finished its shard continues with others, the model
loaded. A lost node costs time only: Slurm starts its task again, or another node
continues with its shard. 90 s before its time limit a task saves its results and
returns to the queue.

Accepts every flag of gpurun run; the tasks get them.`

// lead is how long before its time limit Slurm signals a task. The signal may come up to
// 60 s early.
const lead = 90 * time.Second

// slurmFlags are the flags of submit slurm.
type slurmFlags struct {
	submitFlags
	sbatch, sbatchMerge, setup []string
	program                    string
}

func newSubmitSlurm() *cobra.Command {
	f := &slurmFlags{}
	cmd := &cobra.Command{
		Use:   "slurm --nodes N --gpus-per-node G -k KERNEL INPUT... -o OUTPUT",
		Short: "Run a job on several nodes of a Slurm cluster",
		Long:  submitSlurmHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.submit(cmd, args) },
	}
	flags := cmd.Flags()
	f.registerSubmit(flags, "nodes")
	flags.StringArrayVar(&f.sbatch, "sbatch", nil, "`OPTIONS` of sbatch for all jobs, such as '--partition=gpu --time=4:00:00' (repeatable)")
	flags.StringArrayVar(&f.sbatchMerge, "sbatch-merge", nil, "more `OPTIONS` of sbatch for the merge, which needs no GPU, such as --partition=cpu (repeatable)")
	flags.StringArrayVar(&f.setup, "setup", nil, "`LINE` of shell that prepares a node before gpurun starts, such as 'module load cuda' (repeatable)")
	flags.StringVar(&f.program, "gpurun", "", "`PATH` of gpurun on the nodes (default: that of this program)")
	flags.BoolVar(&f.print, "print", false, "print a script that submits the jobs, instead of submitting them")
	return cmd
}

func (f *slurmFlags) submit(cmd *cobra.Command, args []string) error {
	config, err := f.prepare(cmd, args)
	if err != nil {
		return err
	}
	if run, err := cluster.Open(config.Output.Path); err == nil && !cmd.Flags().Changed("shards") {
		f.shardCount = run.Shards // whatever the number of nodes is now
	}
	job, err := f.slurmJob(cmd, config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := f.checkKernel(ctx, config); err != nil {
		return err
	}
	if f.print {
		return f.printScript(ctx, os.Stdout, job, config)
	}
	size, err := slurm.MaxArraySize(ctx) // before the input is counted, which may take long
	if err != nil {
		return err
	}
	s := &submission{job: job, arraySize: size, out: os.Stdout}
	s.run, err = openRun(ctx, config, f.shardCount, os.Args, func(run *cluster.Run, _ json.RawMessage) error { return s.checkIdle(ctx, run) })
	if err != nil {
		return f.job.origins.explain(err)
	}
	return s.submit(ctx)
}

// checkKernel checks the kernel as gpurun plan does, without a device. Only a node may have the
// interpreter, if lines prepare the nodes.
func (f *slurmFlags) checkKernel(ctx context.Context, config orchestrator.Config) error {
	err := orchestrator.CheckKernel(ctx, config)
	if len(f.setup) > 0 && lacksInterpreter(err) {
		fmt.Fprintf(os.Stderr, "gpurun: the kernel was not checked: %v\n", err)
		return nil
	}
	return f.job.origins.explain(err)
}

// checkIdle reports why a run cannot be corrected; nil if it can.
func (s *submission) checkIdle(ctx context.Context, run *cluster.Run) error {
	overview, err := run.Watch(0).Overview(ctx)
	if err != nil {
		return err
	}
	q, err := s.queued(ctx)
	if err != nil {
		return err
	}
	if jobs := append(q.jobs, q.merges...); len(jobs) > 0 {
		return fault.New(fault.Conflict, "Slurm's queue has %s: run scancel %s first", jobsText(jobs), strings.Join(jobs, " "))
	}
	return overview.CheckIdle()
}

// slurmJob describes the jobs to submit.
func (f *slurmFlags) slurmJob(cmd *cobra.Command, config orchestrator.Config) (job slurm.Job, err error) {
	output, err := absoluteOutput(config.Output.Path)
	if err != nil {
		return job, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return job, usagef("working folder: %w", err)
	}
	options, err := slurm.Options(f.sbatch)
	if err != nil {
		return job, usagef("--sbatch: %w", err)
	}
	mergeOptions, err := slurm.Options(f.sbatchMerge)
	if err != nil {
		return job, usagef("--sbatch-merge: %w", err)
	}
	program := f.program
	if program == "" {
		if program, err = programPath(); err != nil {
			return job, err
		}
	}
	merge := []string{"submit", "merge", output}
	if config.Resume.Clean {
		merge = append(merge, "--clean")
	}
	if config.Output.Force {
		merge = append(merge, "--force")
	}
	return slurm.Job{
		Name: "gpurun-" + filepath.Base(output), Program: program, Dir: dir, Logs: slurmFolder(output),
		Nodes: f.nodes, GPUsPerNode: f.gpusPerNode, GPUType: f.gpuType, Options: options, MergeOptions: mergeOptions, Setup: f.setup, Env: activeEnvironment(),
		Shards: f.shardCount, Run: f.forwarded(cmd.Flags()), Merge: merge, Lead: lead,
	}, nil
}

// defaultArraySize is Slurm's MaxArraySize unless a site has changed it.
const defaultArraySize = 1001

// printScript prints a script that submits all shards and the merge.
func (f *slurmFlags) printScript(ctx context.Context, w io.Writer, job slurm.Job, config orchestrator.Config) error {
	size, err := slurm.MaxArraySize(ctx)
	if err != nil {
		size = defaultArraySize // printed on another machine
	}
	shards := make([]int, f.shardCount)
	for i := range shards {
		shards[i] = i
	}
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/bash\n# Submits %d shards of %s to Slurm, and the merge of their results.\n", f.shardCount, config.Output.Path)
	fmt.Fprintf(&b, "set -euo pipefail\n(umask 077; mkdir -p %s)\njobs=\n", slurm.Quote(job.Logs))
	for _, array := range slurm.Split(shards, size) {
		fmt.Fprintf(&b, "\njob=$(sbatch --parsable <<'END'\n%sEND\n)\njobs+=:${job%%%%;*}\necho \"array ${job%%%%;*}\"\n", job.ArrayScript(array))
	}
	fmt.Fprintf(&b, "\njob=$(sbatch --parsable --dependency=afterany\"$jobs\" <<'END'\n%sEND\n)\necho \"merge ${job%%%%;*}\"\n", job.MergeScript())
	_, err = io.WriteString(w, b.String())
	return err
}

// submission submits what is missing of a run.
type submission struct {
	job       slurm.Job
	run       *cluster.Run
	arraySize int
	out       io.Writer
}

// queued is what Slurm still has of earlier submissions.
type queued struct {
	shards map[int]bool
	jobs   []string // array jobs
	merges []string
}

func (s *submission) submit(ctx context.Context) error {
	overview, err := s.run.Watch(0).Overview(ctx)
	if err != nil {
		return err
	}
	if overview.Merged {
		fmt.Fprintf(s.out, "nothing to submit: the run is finished, and %s is merged\n", s.run.Output)
		return nil
	}
	before, err := s.queued(ctx)
	if err != nil {
		return err
	}
	missing := cluster.Missing(overview.Shards)
	fmt.Fprintf(s.out, "run      %s: %s\n", s.run.Dir, shardsText(s.run, len(missing)))
	wanted := slices.DeleteFunc(slices.Clone(missing), func(i int) bool { return before.shards[i] })
	if len(wanted) == 0 && len(before.merges) > 0 {
		fmt.Fprintf(s.out, "nothing to submit: Slurm's queue has %s\n", jobsText(append(before.jobs, before.merges...)))
		return nil
	}
	if n := len(missing) - len(wanted); n > 0 {
		fmt.Fprintf(s.out, "queued   %s in Slurm's queue already: %s\n", plural(n, "shard"), jobsText(before.jobs))
	}
	return s.submitShards(ctx, wanted, before)
}

// submitShards submits arrays for shards, and a merge after all arrays of the run.
func (s *submission) submitShards(ctx context.Context, shards []int, before queued) error {
	stamp := time.Now().UTC().Format("20060102T150405.000")
	if err := os.MkdirAll(s.job.Logs, files.PrivateDirMode); err != nil {
		return usagef("create the folder of scripts and logs: %w", err)
	}
	record := slurm.Record{Created: time.Now(), Name: s.job.Name}
	submitted := s.submitArrays(ctx, shards, stamp, &record)
	if submitted == nil {
		record.Merge, submitted = s.submitMerge(ctx, append(before.jobs, record.Jobs()...), stamp, before.merges)
	}
	if len(record.Arrays) == 0 && record.Merge == "" {
		return submitted
	}
	if err := s.record(record, stamp); err != nil {
		return err
	}
	if err := s.run.AddSubmission(cluster.Submission{
		Created: record.Created, Engine: "slurm", Command: os.Args, Jobs: record.Jobs(), Resubmit: record.Resubmit(),
	}); err != nil {
		return err
	}
	if submitted != nil {
		return submitted
	}
	fmt.Fprintf(s.out, "logs     %s\n", s.job.Logs)
	fmt.Fprintf(s.out, "follow   gpurun submit status %s --watch\n", slurm.Quote(s.run.Output))
	return nil
}

// submitArrays submits arrays for shards. Each is recorded at once: if this process is killed,
// the same command submits only the others.
func (s *submission) submitArrays(ctx context.Context, shards []int, stamp string, record *slurm.Record) error {
	for i, array := range slurm.Split(shards, s.arraySize) {
		path := filepath.Join(s.job.Logs, fmt.Sprintf("%s-%d.sh", stamp, i))
		script := s.job.ArrayScript(array)
		if err := files.WriteDurably(path, []byte(script), files.PrivateMode); err != nil {
			return err
		}
		id, err := slurm.Submit(ctx, script)
		if err != nil {
			return err
		}
		crash.Point("array-submitted")
		record.Arrays = append(record.Arrays, slurm.Submitted{Job: id, Offset: array.Offset, Tasks: cluster.ArrayText(array.Tasks), Script: path})
		if err := s.record(*record, stamp); err != nil {
			return err
		}
		crash.Point("array-recorded")
		fmt.Fprintf(s.out, "array    job %s: %s, %s\n", id, tasksText(array), s.tasksAtOnce())
	}
	return nil
}

// record notes what Slurm has got.
func (s *submission) record(record slurm.Record, stamp string) error {
	if err := slurm.WriteRecord(filepath.Join(s.job.Logs, stamp+".json"), record); err != nil {
		return usagef("record the submitted jobs: %w", err)
	}
	return nil
}

// submitMerge submits the merge, in the place of earlier ones that have not started.
func (s *submission) submitMerge(ctx context.Context, after []string, stamp string, replaced []string) (string, error) {
	script := s.job.MergeScript()
	if err := files.WriteDurably(filepath.Join(s.job.Logs, stamp+"-merge.sh"), []byte(script), files.PrivateMode); err != nil {
		return "", usagef("write the script of the merge: %w", err)
	}
	var options []string
	when := "at once"
	if len(after) > 0 {
		options, when = []string{slurm.AfterAny(after)}, "after "+jobsText(after)
	}
	id, err := slurm.Submit(ctx, script, options...)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(s.out, "merge    job %s: %s\n", id, when)
	return id, slurm.CancelPending(ctx, replaced)
}

// queued returns what Slurm still has of the run.
func (s *submission) queued(ctx context.Context) (q queued, err error) {
	records, err := slurm.Records(s.job.Logs)
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
	tasks, err := slurm.Live(ctx, jobs)
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

func (s *submission) tasksAtOnce() string {
	text := fmt.Sprintf("at most %d at a time", s.job.Nodes)
	if s.job.GPUsPerNode > 0 {
		text += fmt.Sprintf(", %d GPUs each", s.job.GPUsPerNode)
	}
	return text
}

func jobsText(jobs []string) string {
	if len(jobs) == 1 {
		return "job " + jobs[0]
	}
	return "jobs " + strings.Join(jobs, ", ")
}

func tasksText(a slurm.Array) string {
	first := a.Offset + a.Tasks[0]
	if len(a.Tasks) == 1 {
		return fmt.Sprintf("1 task, shard %d", first)
	}
	return fmt.Sprintf("%d tasks, shards %d to %d", len(a.Tasks), first, a.Offset+a.Tasks[len(a.Tasks)-1])
}

// shardsText describes a run.
func shardsText(run *cluster.Run, missing int) string {
	_, size := run.Range(0)
	text := fmt.Sprintf("%s of %s records", plural(run.Shards, "shard"), progress.Count(size))
	if done := run.Shards - missing; done > 0 {
		text += fmt.Sprintf(", %d done", done)
	}
	return text
}
