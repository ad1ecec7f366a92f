// Package slurm runs the shards of a run as array jobs of Slurm: it writes the batch
// scripts, calls Slurm's programs and reads their answers.
package slurm

import (
	"embed"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"text/template"
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

// script is a batch script: of the tasks of an array, or of the merge, which has none.
type script struct {
	Job
	Title, Log string
	Tasks      string   // as sbatch takes them
	Options    []string // of this script
	Words      []string // the command
}

//go:embed *.tmpl
var templates embed.FS

// scripts is parsed when it is needed: every process of a job has this package.
var scripts = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"quote": Quote, "command": Command, "export": quoteValue(Quote), "option": quoteValue(quoteOption),
	}).ParseFS(templates, "*.tmpl"))
})

// String returns the script. It ends in exec: as a child of the shell, gpurun would be killed without
// notice, or survive as an orphan. It changes to the folder of the run, since Slurm would use another
// if it is missing.
func (s script) String() string {
	var b strings.Builder
	s.Log = filepath.Join(strings.ReplaceAll(s.Logs, "%", "%%"), s.Log)
	if err := scripts().ExecuteTemplate(&b, "script.sh.tmpl", s); err != nil {
		panic(err) // the template fits the type
	}
	return b.String()
}

// ArrayScript returns the batch script of an array. All GPUs of a task are on one node.
func (j Job) ArrayScript(a Array) string {
	tasks := cluster.ArrayText(a.Tasks)
	if j.Nodes > 0 {
		tasks += fmt.Sprintf("%%%d", j.Nodes)
	}
	shard := fmt.Sprintf("auto/%d", j.Shards)
	if a.Offset > 0 {
		shard = fmt.Sprintf("auto+%d/%d", a.Offset, j.Shards)
	}
	words := append([]string{j.Program, "run", "--shard", shard}, j.Run...)
	return script{Job: j, Title: j.Name, Log: "%A_%a.log", Tasks: tasks, Options: j.Options, Words: words}.String()
}

// MergeScript returns the batch script of the merge. It needs no GPU.
func (j Job) MergeScript() string {
	options, words := append(withoutGPUs(j.Options), j.MergeOptions...), append([]string{j.Program}, j.Merge...)
	return script{Job: j, Title: j.Name + "-merge", Log: "merge_%j.log", Options: options, Words: words}.String()
}

// quoteValue returns a function that quotes the value of NAME=VALUE, and leaves other texts.
func quoteValue(quote func(string) string) func(string) string {
	return func(text string) string {
		if name, value, found := strings.Cut(text, "="); found {
			text = name + "=" + quote(value)
		}
		return text
	}
}

// quoteOption quotes a value for an #SBATCH line, which knows double quotes only.
func quoteOption(value string) string {
	if !strings.ContainsAny(value, " \t#'\"\\") {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

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
