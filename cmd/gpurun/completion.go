package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Shell completion of flags and arguments (gpurun completion bash).

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

// registerCompletions adds completions to a command.
func registerCompletions(cmd *cobra.Command) {
	if f := completeArguments[cmd.CommandPath()]; f != nil {
		cmd.ValidArgsFunction = f
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if complete := completion(f); complete != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails for a flag that does not exist
		}
	})
}

// completion completes the values of a flag; nil if it has nothing to suggest.
func completion(f *pflag.Flag) cobra.CompletionFunc {
	v := settingOf(f)
	switch {
	case v == nil:
		return nil
	case v.setting.Value == "KERNEL":
		return kernels
	case v.setting.Value == "FOLDER":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case v.setting.Endings != nil:
		return withEndings(v.setting.Endings)
	}
	words := v.setting.Words
	if v.setting.Kind == spec.Bool && words != nil {
		words = append(words, "true", "false")
	}
	if words = append(v.setting.Try, words...); len(words) == 0 {
		return nil
	}
	return cobra.FixedCompletions(slices.Compact(words), cobra.ShellCompDirectiveNoFileComp)
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
