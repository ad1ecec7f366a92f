package main

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// fewFlags is the number of flags up to which --help lists all of them, without headings.
const fewFlags = 15

// helpAll is the flag of commands with more flags that lists all of them.
const helpAll = "help-all"

// shortenHelp makes the help of a command and its subcommands list the common flags, and that
// of --help-all all flags under their headings.
func shortenHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("flagsHelp", flagsHelp)
	cobra.AddTemplateFunc("aboutHelp", aboutHelp)
	const flags, about = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), flags, "{{flagsHelp .}}", 1))
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), about, "{{with (aboutHelp .)}}{{. | trimTrailingWhitespaces}}", 1) + helpFooter)
	eachCommand(root, addHelpAll)
}

// addHelpAll adds --help-all to a command with many flags.
func addHelpAll(cmd *cobra.Command) {
	if len(visible(cmd.LocalFlags())) <= fewFlags {
		return
	}
	addFlags(cmd.Flags(), nil, spec.Setting{Name: helpAll, Kind: spec.Bool, Common: true, Help: "help with all flags"})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed(helpAll) {
			return cmd.Help()
		}
		return run(cmd, args)
	}
}

// isShort reports whether the help of a command leaves out most of it.
func isShort(cmd *cobra.Command) bool {
	all := cmd.Flags().Lookup(helpAll)
	return all != nil && !all.Changed
}

// aboutHelp is the text above the flags: its first two paragraphs, which end with examples, or
// all of it.
func aboutHelp(cmd *cobra.Command) string {
	text := cmp.Or(cmd.Long, cmd.Short)
	if parts := strings.SplitN(text, "\n\n", 3); isShort(cmd) && len(parts) == 3 {
		return parts[0] + "\n\n" + parts[1]
	}
	return text
}

// flagSection is a heading and its flags.
type flagSection struct {
	title string
	flags []*pflag.Flag
}

// allFlags is the heading of a command with few flags.
const allFlags = "Flags"

// visible returns the flags that are not hidden.
func visible(flags *pflag.FlagSet) (list []*pflag.Flag) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			list = append(list, f)
		}
	})
	return list
}

// flagSections returns the flags of a command in the order of the help.
func flagSections(cmd *cobra.Command) (sections []flagSection) {
	flags := visible(cmd.LocalFlags())
	if len(flags) == 0 {
		return nil
	}
	if len(flags) <= fewFlags {
		return []flagSection{{allFlags, flags}}
	}
	grouped := make(map[string][]*pflag.Flag)
	for _, f := range flags {
		group := ""
		if v := settingOf(f); v != nil {
			group = v.setting.Group
		}
		grouped[group] = append(grouped[group], f)
	}
	for _, title := range append(headings, "") {
		if flags := grouped[title]; len(flags) > 0 {
			sections = append(sections, flagSection{cmp.Or(title, "Other"), flags})
		}
	}
	return sections
}

// commonFlags are those that the short help of a command lists.
func commonFlags(cmd *cobra.Command) flagSection {
	section := flagSection{title: "Common flags"}
	for _, f := range visible(cmd.LocalFlags()) {
		if v := settingOf(f); v == nil || v.setting.Common {
			section.flags = append(section.flags, f)
		}
	}
	return section
}

// flagsHelp lists the flags of a command.
func flagsHelp(cmd *cobra.Command) string {
	columns := terminalColumns()
	sections := flagSections(cmd)
	if isShort(cmd) {
		sections = []flagSection{commonFlags(cmd)}
	}
	var texts []string
	for _, section := range sections {
		flags := newGroup()
		for _, f := range section.flags {
			flags.AddFlag(f)
		}
		texts = append(texts, section.title+":\n"+strings.TrimRight(flags.FlagUsagesWrapped(columns), "\n"))
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

const jobFileHelp = `A job file holds the settings of a job, for gpurun run, plan and retry:

  gpurun run -f job.yaml

  input: docs.jsonl
  output: out.jsonl
  kernel: embed.py
  kernel-config:
    model: small
  gpus: 0-3
  keep: [id, url]
  max-time: 8h

Every flag of gpurun run is a setting, under its name without the dashes. A list may be
written as such. input takes what the command line names as INPUT. A chain of kernels is a
list of steps:

  steps:
    - clean.py
    - kernel: embed.py
      config: {model: small}

Paths are relative to the job file, and its kernel runs in the job file's folder; dir
names another folder. Flags take precedence over GPURUN_* variables, and those over the
job file. --step-config replaces the configuration of one step, --step all steps.

gpurun plan -f job.yaml --print shows all settings and where each comes from.
gpurun help job-file --schema prints a JSON Schema, with which editors check and complete
job files.`

// newJobFileHelp adds a help topic: a command that cannot be run.
func newJobFileHelp() *cobra.Command {
	return &cobra.Command{Use: "job-file", Short: "Job files: the settings of a job in a YAML file", Long: jobFileHelp}
}

// offerSchema lets gpurun help job-file print the schema.
func offerSchema(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	at := slices.IndexFunc(root.Commands(), func(cmd *cobra.Command) bool { return cmd.Name() == "help" })
	help := root.Commands()[at]
	show := help.Run
	addFlags(help.Flags(), nil, spec.Setting{Name: "schema", Kind: spec.Bool, Help: "with job-file: print the JSON Schema of job files"})
	_ = help.Flags().MarkHidden("schema") // no other topic has one
	help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
		switch {
		case textOf(cmd.Flags(), "schema") != "true":
			show(cmd, args)
			return nil
		case !slices.Equal(args, []string{"job-file"}):
			return fault.FlagsClash.New("only gpurun help job-file has a schema")
		}
		_, err := os.Stdout.Write(jobfile.Schema(jobSettings))
		return err
	}
}
