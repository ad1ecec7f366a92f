package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/cluster/slurm"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
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

// slurmSubmit submits a job to Slurm.
type slurmSubmit struct {
	*clusterJob
	Sbatch, SbatchMerge, Setup []string
	Program                    string
}

func newSubmitSlurm() *cobra.Command {
	f := &slurmSubmit{}
	cmd := &cobra.Command{
		Use:   "slurm --nodes N --gpus-per-node G -k KERNEL INPUT... -o OUTPUT",
		Short: "Run a job on several nodes of a Slurm cluster",
		Long:  submitSlurmHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.submit(cmd, args) },
	}
	f.clusterJob = newClusterJob(cmd, "nodes", "print a script that submits the jobs, instead of submitting them")
	addFlags(cmd.Flags(), f,
		spec.Setting{Name: "sbatch", Group: groupCluster, Kind: spec.Repeated, Field: "Sbatch", Value: "OPTIONS", Common: true, Help: "OPTIONS of sbatch for all jobs, such as '--partition=gpu --time=4:00:00' (repeatable)"},
		spec.Setting{Name: "sbatch-merge", Group: groupCluster, Kind: spec.Repeated, Field: "SbatchMerge", Value: "OPTIONS", Help: "more OPTIONS of sbatch for the merge, which needs no GPU, such as --partition=cpu (repeatable)"},
		spec.Setting{Name: "setup", Group: groupCluster, Kind: spec.Repeated, Field: "Setup", Value: "LINE", Common: true, Help: "LINE of shell that prepares a node before gpurun starts, such as 'module load cuda' (repeatable)"},
		spec.Setting{Name: "gpurun", Group: groupCluster, Field: "Program", Value: "PATH", Help: "PATH of gpurun on the nodes (default: that of this program)"},
	)
	return cmd
}

func (f *slurmSubmit) submit(cmd *cobra.Command, args []string) error {
	config, err := f.prepare(cmd, args)
	if err != nil {
		return err
	}
	if run, err := cluster.Open(config.Output.Path); err == nil && !cmd.Flags().Changed("shards") {
		f.options.Shards = run.Shards // whatever the number of nodes is now
	}
	job, err := f.slurmJob(config)
	if err != nil {
		return err
	}
	ctx, stop := untilStopped(cmd.Context())
	defer stop()
	if err := f.checkKernel(ctx, config); err != nil {
		return err
	}
	if f.options.Print {
		return job.PrintScript(ctx, os.Stdout, config.Output.Path)
	}
	size, err := slurm.MaxArraySize(ctx) // before the input is counted, which may take long
	if err != nil {
		return err
	}
	s := &slurm.Submission{Job: job, ArraySize: size, Out: os.Stdout}
	whole := func(string) bool { return true } // this command says all of what the job is
	s.Run, _, err = openRun(ctx, config, job.Shards, whole, func(run *cluster.Run, _ orchestrator.Config) error { return s.CheckIdle(ctx, run) })
	if err != nil {
		return f.job.origins.explain(err)
	}
	return s.Submit(ctx)
}

// checkKernel checks the kernel as gpurun plan does, without a device. Only a node may have the
// interpreter, if lines prepare the nodes.
func (f *slurmSubmit) checkKernel(ctx context.Context, config orchestrator.Config) error {
	err := orchestrator.CheckKernel(ctx, config)
	if len(f.Setup) > 0 && lacksInterpreter(err) {
		fmt.Fprintf(os.Stderr, "gpurun: the kernel was not checked: %v\n", err)
		return nil
	}
	return f.job.origins.explain(err)
}

// slurmJob describes the jobs to submit.
func (f *slurmSubmit) slurmJob(config orchestrator.Config) (job slurm.Job, err error) {
	output := files.Absolute(config.Output.Path)
	if strings.HasSuffix(config.Output.Path, "/") {
		output += "/"
	}
	dir, err := os.Getwd()
	if err != nil {
		return job, fault.NoFolder.New("working folder: %w", err)
	}
	options, err := slurm.Options(f.Sbatch)
	if err != nil {
		return job, fault.Slurm.New("--sbatch: %w", err)
	}
	mergeOptions, err := slurm.Options(f.SbatchMerge)
	if err != nil {
		return job, fault.Slurm.New("--sbatch-merge: %w", err)
	}
	program, err := os.Executable()
	if err != nil && f.Program == "" {
		return job, fault.NoWorkerProgram.New("path of gpurun: %w; name it with --gpurun", err)
	}
	merge := []string{"submit", "merge", output}
	if config.Resume.Clean {
		merge = append(merge, "--clean")
	}
	if config.Output.Force {
		merge = append(merge, "--force")
	}
	return slurm.Job{
		Name: "gpurun-" + filepath.Base(output), Program: cmp.Or(f.Program, program), Dir: dir, Logs: slurmFolder(output),
		Nodes: f.options.Nodes, GPUsPerNode: f.options.GPUs.number, GPUType: f.options.GPUs.model, Options: options, MergeOptions: mergeOptions, Setup: f.Setup, Env: activeEnvironment(),
		Shards: f.options.Shards, Run: f.forwarded(), Merge: merge, Lead: lead,
	}, nil
}
