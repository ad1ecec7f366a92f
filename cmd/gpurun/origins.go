package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobfile"
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

// origins are those of all settings that are not defaults, by name.
type origins map[string]origin

// noteOrigins records the flags on the command line.
func noteOrigins(flags *pflag.FlagSet) origins {
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
		if !set || f.Changed || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			mistakes = append(mistakes, jobfile.Mistake{Text: fmt.Sprintf("environment variable %s: %v", name, explainFlag(err))})
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
	var usage *usageError
	if err == nil || !errors.As(err, &usage) && fault.KindOf(err) != fault.Usage {
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
