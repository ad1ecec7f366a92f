package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// shardsPerNode is how many shards a node gets on average: more balance unequal nodes
// better and cost less when a node is lost, but each has a short start and end
// (docs/scale.md).
const shardsPerNode = 8

// clusterJob is a command that makes nodes of a cluster compute a job.
type clusterJob struct {
	job     *jobCommand
	options submitOptions
	inputs  []string
}

// submitOptions are the settings that submit slurm and submit k8s share.
type submitOptions struct {
	Nodes  int
	GPUs   nodeGPUs
	Shards int
	Print  bool
}

// nodeGPUs are the GPUs of a node.
type nodeGPUs struct {
	number int
	model  string // "" for any
}

// Set parses N and MODEL:N.
func (g *nodeGPUs) Set(text string) (err error) {
	model, number, typed := strings.Cut(text, ":")
	if !typed {
		model, number = "", text
	}
	g.model = model
	if g.number, err = strconv.Atoi(number); err != nil || g.number < 0 || typed && model == "" {
		return errors.New("must be a number, or a type and a number such as h100:8")
	}
	return nil
}

// newClusterJob adds the settings of submit and of run. unit is what works.
func newClusterJob(cmd *cobra.Command, unit, print string) *clusterJob {
	s := &clusterJob{}
	addFlags(cmd.Flags(), &s.options,
		spec.Setting{Name: "nodes", Group: groupCluster, Kind: spec.Int, Field: "Nodes", Least: 1, Common: true, Help: "number of " + unit + " that work at the same time"},
		spec.Setting{Name: "gpus-per-node", Group: groupCluster, Field: "GPUs", Common: true, Help: "GPUs of each of them, 8 or h100:8; none with --gpus cpu:N"},
		spec.Setting{Name: "shards", Group: groupCluster, Kind: spec.Int, Field: "Shards", Least: 1, Help: fmt.Sprintf("cut the input into this many shards; more balance unequal nodes better (default %d per node)", shardsPerNode)},
		spec.Setting{Name: "print", Group: groupCluster, Kind: spec.Bool, Field: "Print", Common: true, Help: print},
	)
	s.job = newJobCommand(cmd, nil)
	for name := range notInSubmit {
		_ = cmd.Flags().MarkHidden(name) // fails for a flag that does not exist
	}
	return s
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
func (s *clusterJob) prepare(cmd *cobra.Command, args []string) (config orchestrator.Config, err error) {
	if args, err = s.job.readSettings(cmd, args, inputSetting); err != nil {
		return config, err
	}
	if s.inputs = args; s.job.options.JobFile == "-" {
		return config, fault.NotForShards.New("tasks cannot read a job file from standard input: name a file that all nodes see")
	}
	if len(args) == 0 {
		return config, fault.NoInput.New("no input: name a JSON Lines file that all nodes see; see %s --help", cmd.CommandPath())
	}
	if slices.Contains(args, "-") || slices.Contains(args, "/dev/stdin") {
		return config, fault.NotForShards.New("standard input cannot be split into shards: name a file that all nodes see")
	}
	s.job.setInputs(args)
	for _, name := range slices.Sorted(maps.Keys(notInSubmit)) {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() != flag.DefValue {
			return config, s.job.origins.explain(fault.NotForShards.New("--%s does not fit gpurun submit: %s", name, notInSubmit[name]))
		}
	}
	if config, err = s.job.configure(); err != nil {
		return config, err
	}
	onCPU := strings.HasPrefix(config.Devices.GPUs, "cpu")
	switch o := &s.options; {
	case config.Output.Path == "":
		return config, fault.NoOutput.New("no output: add -o %s", suggestOutput(args[0]))
	case config.Output.Path == "-" || config.Output.Path == "/dev/stdout":
		return config, fault.NotForShards.New("standard output cannot take the results of several nodes: add -o %s", suggestOutput(args[0]))
	case o.Nodes == 0:
		return config, fault.Kubernetes.New("--nodes is missing: how many nodes may work at the same time")
	case o.GPUs.number == 0 && !onCPU:
		return config, fault.Kubernetes.New("--gpus-per-node is missing: how many GPUs each node has, or --gpus cpu:N to use none")
	case o.GPUs.number > 0 && onCPU:
		return config, fault.Kubernetes.New("--gpus-per-node %d requests GPUs that --gpus %s would not use", o.GPUs.number, config.Devices.GPUs)
	case o.Shards == 0:
		o.Shards = shardsPerNode * o.Nodes
	}
	return config, nil
}

// forwarded returns the arguments of gpurun run with which every task does the same job:
// what the command line and the environment have set, and the job file by its path.
func (s *clusterJob) forwarded() (args []string) {
	if name := s.job.options.JobFile; name != "" {
		args = append(args, "--job-file="+files.Absolute(name))
	}
	for _, setting := range slices.Concat(spec.Settings, runSettings) {
		from, set := s.job.origins[setting.Name]
		flag := settingOf(s.job.flags.Lookup(setting.Name))
		if !set || flag == nil || from.file != "" || setting.Name == "job-file" || setting.Name == "clean" {
			continue
		}
		values := flag.again()
		if setting.Name == "step-config" {
			values = values[s.job.fileConfigs:] // the job file has the others
		}
		for _, value := range values {
			args = append(args, "--"+setting.Name+"="+value)
		}
	}
	if s.job.origins[inputSetting].file != "" {
		return args
	}
	if strings.HasPrefix(s.inputs[0], "-") {
		args = append(args, "--")
	}
	return append(args, s.inputs...)
}

// lacksInterpreter reports whether a kernel could not be asked because its Python is not here.
func lacksInterpreter(err error) bool {
	e := fault.As(err)
	return e != nil && e.Kind == fault.Incompatible && e.Value == "python"
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
