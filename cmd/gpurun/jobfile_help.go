package main

import (
	"os"
	"slices"

	"github.com/spf13/cobra"
)

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
	schema := help.Flags().Bool("schema", false, "with job-file: print the JSON Schema of job files")
	_ = help.Flags().MarkHidden("schema") // no other topic has one
	help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
		switch {
		case !*schema:
			show(cmd, args)
			return nil
		case !slices.Equal(args, []string{"job-file"}):
			return usagef("only gpurun help job-file has a schema")
		}
		_, err := os.Stdout.Write(jobSchema())
		return err
	}
}
