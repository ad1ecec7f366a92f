package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/jobs"
)

// Shell completion of flags and arguments (gpurun completion bash).

// complete lists the values of enumerated flags.
var complete = map[string][]string{
	"accept-changes":  {"kernel", "config", "kernel,config"},
	"batch-size":      {"auto"},
	"exec-mode":       {"batch", "stream", "per-record"},
	"format":          {"openai-batch"},
	"give-up":         {"stop", "mark"},
	"bad-input":       {"fail", "skip"},
	"gpus":            {"all", "cpu:1", "cpu:2", "cpu:4"},
	"halt":            {"never", "fail=1", "fail=100", "fail=5%"},
	"log-level":       {"debug", "info", "warn", "error"},
	"nan":             {"null", "error"},
	"pin":             {"index", "uuid"},
	"profile":         {"datacenter", "workstation"},
	"split":           {"auto", "records", "bytes"},
	"stagger":         {"auto", "true", "false"},
	"workers-per-gpu": {"auto", "1", "2", "4"},
}

// completeFiles lists the file extensions that flags accept.
var completeFiles = map[string][]string{
	"job-file": {"yaml", "yml"}, "kernel-config": {"json"}, "monitor-config": {"yaml", "yml"}, "services": {"yaml", "yml"},
	"errors": {"jsonl"}, "report": {"json"},
}

// completeFolders lists the flags that take a folder.
var completeFolders = []string{"work-dir", "source", "fetch-root"}

// records are the extensions of JSON Lines files.
var records = []string{"jsonl", "ndjson", "json"}

// completeArguments completes positional arguments, by command.
var completeArguments = map[string]cobra.CompletionFunc{
	"gpurun run":          withEndings(records),
	"gpurun plan":         withEndings(records),
	"gpurun submit slurm": withEndings(records),
	"gpurun retry":        withEndings(records),
	"gpurun report":       withEndings(records),
	"gpurun pause":        completeJobs,
	"gpurun resume":       completeJobs,
	"gpurun cancel":       completeJobs,
	"gpurun plugin new":   cobra.FixedCompletions([]string{"go", "python", "cuda"}, cobra.ShellCompDirectiveDefault),
	"gpurun plugin check": kernels,
	"gpurun try":          kernels,
	"gpurun manual":       cobra.FixedCompletions(manualNames(), cobra.ShellCompDirectiveNoFileComp),
}

// registerCompletions adds completions to a command and its subcommands.
func registerCompletions(cmd *cobra.Command) {
	if f := completeArguments[cmd.CommandPath()]; f != nil {
		cmd.ValidArgsFunction = f
	}
	register := func(name string, f cobra.CompletionFunc) {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, f)
		}
	}
	for name, values := range complete {
		register(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	for name, endings := range completeFiles {
		register(name, withEndings(endings))
	}
	for _, name := range completeFolders {
		register(name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
	}
	register("kernel", kernels)
	register("step", kernels)
	for _, sub := range cmd.Commands() {
		registerCompletions(sub)
	}
}

func withEndings(endings []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(endings, cobra.ShellCompDirectiveFilterFileExt)
}

// kernels completes built-in kernels, those in $GPURUN_PLUGIN_PATH, and files.
func kernels(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(builtinAbout)) {
		if called := builtinAbout[name]; !strings.ContainsAny(called[0], " .") {
			names = append(names, strings.TrimSuffix(called[0], "COMMAND")+"\t"+called[1])
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("GPURUN_PLUGIN_PATH")) {
		found, _ := installed(dir)
		for _, k := range found {
			names = append(names, k.name+"\t"+k.kind)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) })
	return names, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
}

// completeJobs completes the ids of running jobs.
func completeJobs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, job := range jobs.List() {
			names = append(names, job.ID+"\t"+job.Output)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
