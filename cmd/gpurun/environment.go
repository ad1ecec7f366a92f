package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/nearest"
)

// prefix starts the names of gpurun's environment variables.
const prefix = "GPURUN_"

// variable returns the name of the environment variable that sets a flag.
func variable(f *pflag.Flag) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// fromEnvironment sets flags that are missing on the command line from GPURUN_*.
func fromEnvironment(cmd *cobra.Command) error {
	if mistakes := noteOrigins(cmd.Flags()).fromEnvironment(cmd); len(mistakes) > 0 {
		return &usageError{mistakes}
	}
	return nil
}

// knownVariables returns the variables of all commands' flags and those without a flag.
func knownVariables(root *cobra.Command) []string {
	known := []string{lease.Variable, jobs.Variable, "GPURUN_PLUGIN_PATH", "GPURUN_PPROF"}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, variable(f)) })
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	slices.Sort(known)
	return slices.Compact(known)
}

// misspelled returns a message for each variable that resembles a known one. It ignores
// others: a script may well define its own GPURUN_BIN.
func misspelled(environment, known []string) (messages []string) {
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) {
			continue
		}
		if meant := meantVariable(name, known); meant != "" {
			messages = append(messages, fmt.Sprintf("environment variable %s has no effect; did you mean %s?", name, meant))
		}
	}
	slices.Sort(messages)
	return messages
}

// shortName is the length below which names resemble each other by chance: BIN and PIN.
const shortName = 6

// meantVariable returns the known variable that name misspells, "" if there is none.
func meantVariable(name string, known []string) string {
	bare := func(name string) string {
		return strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", ""), "S")
	}
	for _, candidate := range known {
		if bare(candidate) == bare(name) {
			return candidate
		}
	}
	if len(bare(name)) < shortName {
		return ""
	}
	return nearest.Of(name, known, 3)
}
