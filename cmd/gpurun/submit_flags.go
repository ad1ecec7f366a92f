package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// shardsPerNode is how many shards a node gets on average: more balance unequal nodes
// better and cost less when a node is lost, but each has a short start and end
// (docs/scale.md).
const shardsPerNode = 8

// submitFlags are the flags that submit slurm and submit k8s share.
type submitFlags struct {
	runFlags
	nodes       int
	gpus        string
	gpuType     string // of the GPUs; "" for any
	gpusPerNode int
	shardCount  int
	print       bool
	inputs      []string
}

// registerSubmit adds the flags of submit and those of run.
func (f *submitFlags) registerSubmit(flags *pflag.FlagSet, unit string) {
	flags.SortFlags = false
	flags.IntVar(&f.nodes, "nodes", 0, "number of "+unit+" that work at the same time")
	flags.StringVar(&f.gpus, "gpus-per-node", "", "GPUs of each of them, 8 or h100:8; none with --gpus cpu:N")
	flags.IntVar(&f.shardCount, "shards", 0, fmt.Sprintf("cut the input into this many shards; more balance unequal nodes better (default %d per node)", shardsPerNode))
	f.register(flags)
	for name := range notInSubmit {
		_ = flags.MarkHidden(name) // fails for a flag that does not exist
	}
}

// submitOnly are the flags that a task does not get.
var submitOnly = []string{
	"nodes", "gpus-per-node", "shards", "print", "sbatch", "sbatch-merge", "setup", "gpurun", "image", "claim", "namespace",
	"cpus", "memory", "user", "node-selector", "toleration", "job-file", "clean", "help",
}

// notInSubmit are the flags of run that submit sets itself, or that one submission cannot
// mean for all tasks.
var notInSubmit = map[string]string{
	"shard":        "every task gets its own; --shards sets their number",
	"merge":        "the results are merged when all shards are done",
	"fresh":        "remove the folder OUTPUT.shards to start over",
	"report":       "every task would write the same file; gpurun submit status --json shows all shards",
	"metrics-file": "every task would write the same file; gpurun submit status --json shows all shards",
	"json-events":  "every task would write the same file; gpurun submit status --json shows all shards",
}

// prepare reads the settings and rejects what cannot run on several nodes.
func (f *submitFlags) prepare(cmd *cobra.Command, args []string) (orchestrator.Config, error) {
	args, err := f.settle(cmd, args, inputSetting)
	if err != nil {
		return orchestrator.Config{}, err
	}
	if f.inputs = args; f.job.name == "-" {
		return orchestrator.Config{}, usagef("tasks cannot read a job file from standard input: name a file that all nodes see")
	}
	if len(args) == 0 {
		return orchestrator.Config{}, usagef("no input: name a JSON Lines file that all nodes see; see %s --help", cmd.CommandPath())
	}
	if slices.Contains(args, "-") || slices.Contains(args, "/dev/stdin") {
		return orchestrator.Config{}, usagef("standard input cannot be split into shards: name a file that all nodes see")
	}
	f.setInputs(args)
	for _, name := range slices.Sorted(maps.Keys(notInSubmit)) {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() != flag.DefValue {
			return orchestrator.Config{}, f.job.origins.explain(usagef("--%s does not fit gpurun submit: %s", name, notInSubmit[name]))
		}
	}
	config, err := f.configure(cmd)
	if err != nil {
		return config, err
	}
	if err := f.parseGPUs(); err != nil {
		return config, err
	}
	switch {
	case config.Output.Path == "":
		return config, usagef("no output: add -o %s", suggestOutput(args[0]))
	case config.Output.Path == "-" || config.Output.Path == "/dev/stdout":
		return config, usagef("standard output cannot take the results of several nodes: add -o %s", suggestOutput(args[0]))
	case f.nodes < 1:
		return config, usagef("--nodes must be at least 1, not %d: how many nodes may work at the same time", f.nodes)
	case f.gpusPerNode == 0 && !strings.HasPrefix(config.Devices.GPUs, "cpu"):
		return config, usagef("--gpus-per-node is missing: how many GPUs each node has, or --gpus cpu:N to use none")
	case f.gpusPerNode > 0 && strings.HasPrefix(config.Devices.GPUs, "cpu"):
		return config, usagef("--gpus-per-node %d requests GPUs that --gpus %s would not use", f.gpusPerNode, config.Devices.GPUs)
	case f.shardCount < 0:
		return config, usagef("--shards must be at least 1, not %d", f.shardCount)
	case f.shardCount == 0:
		f.shardCount = shardsPerNode * f.nodes
	}
	return config, nil
}

// parseGPUs parses N and TYPE:N.
func (f *submitFlags) parseGPUs() (err error) {
	number := f.gpus
	if kind, of, typed := strings.Cut(f.gpus, ":"); typed {
		f.gpuType, number = kind, of
	}
	if number == "" && f.gpuType == "" {
		return nil
	}
	if f.gpusPerNode, err = strconv.Atoi(number); err != nil || f.gpusPerNode < 0 || strings.HasPrefix(f.gpus, ":") {
		return usagef("--gpus-per-node %q: must be a number, or a type and a number such as h100:8", f.gpus)
	}
	return nil
}

// forwarded returns the arguments of gpurun run with which every task does the same job:
// what the command line and the environment have set, and the job file by its path.
func (f *submitFlags) forwarded(flags *pflag.FlagSet) (args []string) {
	if f.job.name != "" {
		path, err := filepath.Abs(f.job.name)
		if err != nil {
			path = f.job.name
		}
		args = append(args, "--job-file="+path)
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		from, set := f.job.origins[flag.Name]
		if !set || from.file != "" || slices.Contains(submitOnly, flag.Name) {
			return
		}
		for _, value := range f.flagTexts(flag) {
			args = append(args, "--"+flag.Name+"="+value)
		}
	})
	if f.job.origins[inputSetting].file != "" {
		return args
	}
	if strings.HasPrefix(f.inputs[0], "-") {
		args = append(args, "--")
	}
	return append(args, f.inputs...)
}

// flagTexts returns the values that set a flag again.
func (f *submitFlags) flagTexts(flag *pflag.Flag) []string {
	list, ok := flag.Value.(pflag.SliceValue)
	if !ok {
		return []string{flag.Value.String()}
	}
	values := list.GetSlice()
	if flag.Name == "step-config" {
		values = values[f.job.stepConfigs:] // the job file has the others
	}
	if flag.Value.Type() != "stringSlice" {
		return values
	}
	texts := make([]string, len(values))
	for i, value := range values {
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		_ = w.Write([]string{value}) // a buffer takes everything
		w.Flush()
		texts[i] = strings.TrimSuffix(b.String(), "\n")
	}
	return texts
}

// absoluteOutput returns the output's path for a command that may run in another folder.
func absoluteOutput(path string) (string, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", usagef("output: %w", err)
	}
	if strings.HasSuffix(path, "/") {
		full += "/"
	}
	return full, nil
}

// lacksInterpreter reports whether a kernel could not be asked because its Python is not here.
func lacksInterpreter(err error) bool {
	e := fault.As(err)
	return e != nil && e.Kind == fault.Incompatible && e.Code == fault.Setting && e.Value == "python"
}

// activeEnvironment returns the variables by which a kernel finds its interpreter and modules.
// Slurm passes them on, but not at every site, and not to a script that is submitted later.
func activeEnvironment() (env []string) {
	for _, name := range []string{"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// programPath returns the path of this program, for scripts.
func programPath() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", usagef("path of gpurun: %w; name it with --gpurun", err)
	}
	return path, nil
}
