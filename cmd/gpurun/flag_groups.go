package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// flagGroup is a heading and the flags below it.
type flagGroup struct {
	title string
	names []string
}

// submitGroup are the flags that submit slurm and submit k8s add to those of run.
var submitGroup = flagGroup{"Cluster", []string{
	"print", "nodes", "gpus-per-node", "shards", "sbatch", "sbatch-merge", "setup",
	"image", "claim", "namespace", "cpus", "memory", "user", "node-selector", "toleration", "gpurun",
}}

// flagGroups are the headings under which the help of run, plan and retry lists flags,
// the most used first.
var flagGroups = []flagGroup{
	{"Job file", []string{"job-file"}},
	{"Kernel", []string{"kernel", "kernel-config", "step", "step-config", "python", "io-workers", "exec-mode", "exec-id", "nan"}},
	{"Fetch", []string{
		"fetch", "fetch-root", "fetch-max-bytes", "fetch-concurrency", "fetch-per-host", "fetch-timeout", "fetch-retries", "fetch-allow-private",
	}},
	{"Output", []string{"output", "output-format", "column", "errors", "keep", "source-field", "force", "part-bytes"}},
	{"Devices", []string{
		"gpus", "num-gpus", "gpu-memory", "gpus-per-worker", "workers-per-gpu", "wait", "no-lease", "services", "name",
		"stagger", "pin", "profile", "monitor-config", "no-monitor", "no-affinity",
	}},
	{"Batching", []string{"batch-size", "batch-bytes", "group-by", "batch-cost", "chunks-per-gpu"}},
	{"Input", []string{"format", "input-format", "columns", "limit", "offset", "bad-input", "reprocess", "max-record-bytes", "no-validate", "split", "chunk-records", "flush"}},
	{"Stopping and resuming", []string{
		"fresh", "accept-changes", "spool", "max-time", "max-requests", "max-tokens-total", "drain-timeout", "checkpoint", "work-dir", "clean",
	}},
	{"Several machines", []string{"shard", "no-claim", "claim-after", "merge"}},
	{"Failures", []string{"timeout", "open-timeout", "retries", "halt", "give-up", "truncated"}},
	{"Display", []string{"quiet", "json-events", "report", "log-level"}},
	{"Page, API and metrics", []string{"listen", "listen-token", "tls-cert", "tls-key", "insecure", "allow-host", "metrics-file"}},
}

// fewFlags is the number of flags up to which headings would only be in the way.
const fewFlags = 15

// groupFlags makes the help of a command and its subcommands use the groups.
func groupFlags(root *cobra.Command) {
	cobra.AddTemplateFunc("groupedFlags", groupedFlags)
	const plain = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), plain, "{{groupedFlags .}}", 1))
}

// flagSection is a heading and its flags.
type flagSection struct {
	title string
	flags *pflag.FlagSet
}

// allFlags is the heading of a command with few flags.
const allFlags = "Flags"

// flagSections returns the flags of a command in the order of the help.
func flagSections(cmd *cobra.Command) (sections []flagSection) {
	count := 0
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			count++
		}
	})
	if count == 0 {
		return nil
	}
	if count <= fewFlags {
		return []flagSection{{allFlags, cmd.LocalFlags()}}
	}
	grouped := make(map[string]bool)
	add := func(title string, flags *pflag.FlagSet) {
		if flags.HasAvailableFlags() {
			sections = append(sections, flagSection{title, flags})
		}
	}
	groups := flagGroups
	if cmd.LocalFlags().Lookup("nodes") != nil {
		groups = append([]flagGroup{submitGroup}, groups...)
	}
	for _, group := range groups {
		flags := newGroup()
		for _, name := range group.names {
			if f := cmd.LocalFlags().Lookup(name); f != nil {
				flags.AddFlag(f)
				grouped[name] = true
			}
		}
		add(group.title, flags)
	}
	rest := newGroup()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !grouped[f.Name] {
			rest.AddFlag(f)
		}
	})
	add("Other", rest)
	return sections
}

// groupedFlags lists the flags of a command.
func groupedFlags(cmd *cobra.Command) string {
	columns := terminalColumns()
	var texts []string
	for _, section := range flagSections(cmd) {
		texts = append(texts, section.title+":\n"+strings.TrimRight(section.flags.FlagUsagesWrapped(columns), "\n"))
	}
	return strings.Join(texts, "\n\n")
}

func newGroup() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return flags
}

// terminalColumns is the width of the terminal on standard output; 0, which does not wrap
// lines, if there is none.
func terminalColumns() int {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return max(60, int(size.Col))
}
