package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
)

const rootHelp = `gpurun runs a kernel, such as a Python function, over millions of records on every GPU of
the machine. It reads JSON lines, Parquet, Arrow and CSV, forms batches, and writes the results in
input order. No record is lost: one that fails stays in the output, marked with the reason.

  gpurun try embed.py in.jsonl                    # a few records, shown side by side
  gpurun run -k embed.py in.jsonl -o out.jsonl    # all of them; the same command resumes
  gpurun report out.jsonl                         # what happened
  gpurun retry out.jsonl                          # the failed records again
  gpurun explain CODE                             # the cause of an error, and what to do
  gpurun manual                                   # the pages of the manual

Every flag can also be set in the environment: GPURUN_BATCH_SIZE sets --batch-size.
Flags on the command line take precedence. A job file (run -f job.yaml) holds the
settings of a job: gpurun help job-file.`

// helpFooter is appended to the help of every command.
const helpFooter = `{{if .Runnable}}
Exit codes: gpurun help exit-codes
{{end}}`

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:                        "gpurun",
		Short:                      "Run a kernel over millions of records on every GPU",
		Long:                       rootHelp,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		Version:                    versionText(), // enables --version
	}
	root.SetVersionTemplate(versionLines())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		code := fault.UnknownFlag
		if errors.As(err, new(*pflag.InvalidValueError)) {
			code = fault.BadValue
		}
		return code.New("%s%s; see %s", flagMessage(err), similarFlag(cmd, err), helpOf(cmd))
	})
	root.AddCommand(newRun(), newPlan(), newTry(), newRetry(), newReport(), newExplain(), newManual(), newStatus(), newWarm(), newCache(), newServe(), newSubmit(), newGPUs(), newPlugin(), newVersion(), newGenerate())
	for _, s := range steerings {
		root.AddCommand(newSteering(s))
	}
	eachCommand(root, complete)
	root.AddCommand(newExitCodes(), newJobFileHelp())
	offerSchema(root)
	shortenHelp(root)
	eachCommand(root, registerCompletions)
	root.Args = usageArgs(func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		suggestion := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			suggestion = fmt.Sprintf("; did you mean %s?", near[0])
		}
		return fmt.Errorf("unknown command %q%s", args[0], suggestion)
	})
	return root
}

// flagMessage returns the message of a wrong flag. That of a wrong value begins with its name.
func flagMessage(err error) string {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) && settingOf(wrong.GetFlag()) != nil {
		return "--" + errors.Unwrap(wrong).Error()
	}
	return err.Error()
}

// helpOf is the command that lists the flags of a command.
func helpOf(cmd *cobra.Command) string {
	if cmd.Flags().Lookup(helpAll) != nil {
		return cmd.CommandPath() + " --" + helpAll
	}
	return cmd.CommandPath() + " --help"
}

// similarFlag suggests a flag for one that does not exist; "" if none is similar.
func similarFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return ""
	}
	var names []string
	for _, f := range visible(cmd.Flags()) {
		names = append(names, "--"+f.Name)
	}
	return nearest.Hint("--"+unknown.GetSpecifiedName(), names, max(2, min(3, len(unknown.GetSpecifiedName())/3)), "")
}

// usageArgs turns a wrong number of arguments into a usage error that shows the given
// arguments and the usage line.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		text := err.Error()
		if len(args) > 1 {
			text += fmt.Sprintf(" (%s)", strings.Join(args, ", "))
		}
		if !cmd.HasSubCommands() {
			text += ": " + cmd.UseLine()
		}
		if len(args) > 1 && wantsEvents(cmd) {
			text += "; to write events to a file, use --json-events=FILE"
		}
		return fault.UnknownFlag.New("%s; see %s", text, helpOf(cmd))
	}
}
