package main

import (
	"fmt"
	"os"
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

// fromEnvironment sets flags that are missing on the command line from GPURUN_*. A
// variable that looks misspelled is an error, since it would silently have no effect.
func fromEnvironment(cmd *cobra.Command) error {
	if err := checkVariables(os.Environ(), knownVariables(cmd.Root())); err != nil {
		return err
	}
	flags := cmd.Flags()
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		value, set := os.LookupEnv(name)
		if !set || f.Changed || f.Name == "help" || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = &usageError{fmt.Errorf("environment variable %s: %w", name, err)}
		}
	})
	return failed
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

// checkVariables rejects a variable that resembles a known one. It ignores others: a
// script may well define its own GPURUN_BIN.
func checkVariables(environment, known []string) error {
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) {
			continue
		}
		if meant := meantVariable(name, known); meant != "" {
			return usagef("environment variable %s has no effect; did you mean %s?", name, meant)
		}
	}
	return nil
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
