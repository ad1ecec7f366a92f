package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/nearest"
)

// origin is where the value of a setting comes from: the command line, the environment or
// a job file.
type origin struct {
	text string // --batch-size, GPURUN_BATCH_SIZE; "" for a job file
	file string
	line int
}

func (o origin) String() string {
	if o.file != "" {
		return fmt.Sprintf("%s:%d", o.file, o.line)
	}
	return o.text
}

// origins has the origin of each setting that is not a default, by name.
type origins map[string]origin

// originsOf returns the origins of the flags on the command line.
func originsOf(flags *pflag.FlagSet) origins {
	o := make(origins)
	flags.Visit(func(f *pflag.Flag) { o[f.Name] = origin{text: "--" + f.Name} })
	return o
}

// fromEnvironment sets flags that are missing on the command line from GPURUN_*. A variable
// that looks misspelled is a mistake, since it would silently have no effect.
func (o origins) fromEnvironment(cmd *cobra.Command) (mistakes jobfile.Mistakes) {
	for _, text := range misspelled(os.Environ(), knownVariables(cmd.Root())) {
		mistakes = append(mistakes, jobfile.Mistake{Text: text})
	}
	flags := cmd.Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		value, set := os.LookupEnv(name)
		if !set || f.Changed || f.Name == "help" || f.Name == helpAll {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			mistakes = append(mistakes, jobfile.Mistake{Text: fmt.Sprintf("environment variable %s: %s", name, strings.TrimPrefix(flagMessage(err), "--"))})
			return
		}
		o[f.Name] = origin{text: name}
	})
	return mistakes
}

// flagNames finds the flags that a message names.
var flagNames = regexp.MustCompile(`(?:^|[\s(])(--[a-z][a-z-]+|-[ko])\b`)

// explain adds to a usage error where the flags that it names were set, if not on the
// command line.
func (o origins) explain(err error) error {
	if fault.KindOf(err) != fault.Usage {
		return err
	}
	err = withHint(err)
	var places []string
	for _, match := range flagNames.FindAllStringSubmatch(err.Error(), -1) {
		name := strings.TrimLeft(match[1], "-")
		switch name {
		case "k":
			name = "kernel"
		case "o":
			name = "output"
		}
		if _, ok := o[name]; !ok && strings.HasPrefix(name, "step") {
			name = stepsSetting
		}
		from, ok := o[name]
		place := fmt.Sprintf("%s is set by %s", name, from)
		if ok && !strings.HasPrefix(from.text, "--") && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if places == nil {
		return err
	}
	return &hinted{err: err, hint: " (" + strings.Join(places, "; ") + ")"}
}

// prefix starts the names of gpurun's environment variables.
const prefix = "GPURUN_"

// variable returns the name of the environment variable that sets a flag.
func variable(f *pflag.Flag) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// fromEnvironment sets flags that are missing on the command line from GPURUN_*.
func fromEnvironment(cmd *cobra.Command) error {
	if mistakes := originsOf(cmd.Flags()).fromEnvironment(cmd); len(mistakes) > 0 {
		return fault.BadValue.New("%w", mistakes)
	}
	return nil
}

// knownVariables returns the variables of all commands' flags and those without a flag.
func knownVariables(root *cobra.Command) []string {
	known := []string{lease.Variable, jobs.Variable, "GPURUN_PLUGIN_PATH", "GPURUN_PPROF"}
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, variable(f)) })
	})
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
