// Package slurm runs the shards of a run as array jobs of Slurm: it writes the batch
// scripts, calls Slurm's programs and reads their answers.
package slurm

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/cluster"
)

// Job is a run as Slurm sees it: tasks of an array, one per shard, and a merge.
type Job struct {
	// Name is what squeue shows.
	Name string
	// Program is gpurun, at a path that the nodes see.
	Program string
	// Dir is the folder in which the tasks run.
	Dir string
	// Logs is the folder of the tasks' logs.
	Logs string
	// Nodes is how many tasks run at a time, each on one node; 0: as many as Slurm starts.
	Nodes int
	// GPUsPerNode is how many GPUs each task gets, 0 for none; GPUType is their type, empty
	// for any.
	GPUsPerNode int
	GPUType     string
	// Options are options of sbatch for all jobs, MergeOptions more of them for the merge.
	Options, MergeOptions []string
	// Env are variables, NAME=VALUE, that the tasks get, whatever Slurm passes on.
	Env []string
	// Setup are lines of shell that prepare a node: module load cuda. They see Env.
	Setup []string
	// Shards is the number of shards of the run.
	Shards int
	// Run are the arguments of gpurun run for a task, without its shard; Merge are those of
	// gpurun for the merge.
	Run, Merge []string
	// Lead is how long before its time limit Slurm signals a task; it then saves its
	// results and returns to the queue. 0: never.
	Lead time.Duration
}

// Array is an array job: task i computes shard Offset + i.
type Array struct {
	Offset int
	Tasks  []int
}

// Split distributes shards over arrays whose task ids are below size, Slurm's MaxArraySize.
// Shards must be in ascending order.
func Split(shards []int, size int) (arrays []Array) {
	for _, shard := range shards {
		offset := shard / size * size
		if last := len(arrays) - 1; last < 0 || arrays[last].Offset != offset {
			arrays = append(arrays, Array{Offset: offset})
		}
		last := &arrays[len(arrays)-1]
		last.Tasks = append(last.Tasks, shard-offset)
	}
	return arrays
}

// ArrayScript returns the batch script of an array. It ends in exec: as a child of the
// shell, gpurun would be killed without notice, or survive as an orphan.
func (j Job) ArrayScript(a Array) string {
	var s script
	s.line("#!/bin/bash")
	s.option("job-name", j.Name)
	tasks := cluster.ArrayText(a.Tasks)
	if j.Nodes > 0 {
		tasks = fmt.Sprintf("%s%%%d", tasks, j.Nodes)
	}
	s.option("array", tasks)
	s.option("nodes", "1") // all GPUs of a task on one node
	s.option("ntasks", "1")
	if j.GPUsPerNode > 0 {
		gpus := fmt.Sprint(j.GPUsPerNode)
		if j.GPUType != "" {
			gpus = j.GPUType + ":" + gpus
		}
		s.option("gpus-per-node", gpus)
	}
	s.option("requeue", "")
	s.option("open-mode", "append") // a requeued task keeps its first log
	if j.Lead > 0 {
		s.option("signal", fmt.Sprintf("B:USR1@%d", int(j.Lead.Seconds())))
	}
	s.option("output", filepath.Join(escapePattern(j.Logs), "%A_%a.log"))
	s.raw(j.Options)
	for _, variable := range j.Env {
		name, value, _ := strings.Cut(variable, "=")
		s.line("export " + name + "=" + Quote(value))
	}
	s.setup(j.Dir, j.Setup)
	s.exec(j.Program, append([]string{"run", "--shard", j.shard(a)}, j.Run...))
	return s.String()
}

// shard returns how a task of an array finds its shard.
func (j Job) shard(a Array) string {
	if a.Offset > 0 {
		return fmt.Sprintf("auto+%d/%d", a.Offset, j.Shards)
	}
	return fmt.Sprintf("auto/%d", j.Shards)
}

// MergeScript returns the batch script of the merge. It needs no GPU.
func (j Job) MergeScript() string {
	var s script
	s.line("#!/bin/bash")
	s.option("job-name", j.MergeName())
	s.option("nodes", "1")
	s.option("ntasks", "1")
	s.option("requeue", "")
	s.option("open-mode", "append")
	s.option("output", filepath.Join(escapePattern(j.Logs), "merge_%j.log"))
	s.raw(withoutGPUs(j.Options))
	s.raw(j.MergeOptions)
	s.setup(j.Dir, j.Setup)
	s.exec(j.Program, j.Merge)
	return s.String()
}

// MergeName is the name of the merge in squeue.
func (j Job) MergeName() string { return j.Name + "-merge" }

// script is a batch script under construction.
type script struct{ strings.Builder }

func (s *script) line(text string) { s.WriteString(text + "\n") }

func (s *script) option(name, value string) {
	if value == "" {
		s.line("#SBATCH --" + name)
		return
	}
	s.line("#SBATCH --" + name + "=" + quoteOption(value))
}

func (s *script) raw(options []string) {
	for _, option := range options {
		name, value, found := strings.Cut(option, "=")
		if found {
			option = name + "=" + quoteOption(value)
		}
		s.line("#SBATCH " + option)
	}
}

// setup changes to the folder of the run, since Slurm would use another if it is missing,
// and runs the site's lines.
func (s *script) setup(dir string, lines []string) {
	s.line("cd " + Quote(dir) + " || exit 2")
	for _, text := range lines {
		s.line(text)
	}
}

func (s *script) exec(program string, args []string) {
	s.line("exec " + Command(append([]string{program}, args...)))
}

// quoteOption quotes a value for an #SBATCH line, which knows double quotes only.
func quoteOption(value string) string {
	if !strings.ContainsAny(value, " \t#'\"\\") {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// escapePattern protects percent signs in the name of a log.
func escapePattern(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// withoutGPUs returns the options that suit a job without GPUs.
func withoutGPUs(options []string) (kept []string) {
	for _, option := range options {
		name, _, _ := strings.Cut(strings.TrimLeft(option, "-"), "=")
		if !strings.HasPrefix(name, "gpu") && !strings.HasPrefix(name, "gres") && !strings.HasSuffix(name, "-per-gpu") && name != "G" && name != "exclusive" {
			kept = append(kept, option)
		}
	}
	return kept
}
