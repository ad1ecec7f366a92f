package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/orchestrator"
)

func TestEveryFlagOfRunHasAHeading(t *testing.T) {
	cmd := newRun()
	known := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known++
		if groupOf(f.Name) == "" {
			t.Errorf("--%s has no heading: add it to flagGroups", f.Name)
		}
	})
	for _, group := range flagGroups {
		for _, name := range group.names {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s lists --%s, which run does not have", group.title, name)
			}
			known--
		}
	}
	if known != 0 {
		t.Errorf("%d flags too many or too few: some flag has two headings", known)
	}
	if help := groupedFlags(cmd); strings.Contains(help, "Other:") || !strings.HasPrefix(help, "Job file:\n  -f, --job-file") {
		t.Errorf("the help begins with %.100s", help)
	}
}

// The groups of orchestrator.Config are the headings of the flags.
func TestHeadingsAreGroupsOfConfig(t *testing.T) {
	headings := make(map[string]bool)
	for _, group := range flagGroups {
		switch group.title {
		case "Stopping and resuming":
			headings["Resume"] = true
		case "Job file", "Several machines", "Page, API and metrics": // of the command, not of the job
		default:
			headings[group.title] = true
		}
	}
	config := reflect.TypeFor[orchestrator.Config]()
	for i := range config.NumField() {
		if field := config.Field(i); field.Type.Name() == field.Name && !headings[field.Name] {
			t.Errorf("Config.%s is a group without a heading", field.Name)
		}
		delete(headings, config.Field(i).Name)
	}
	for title := range headings {
		t.Errorf("the heading %q is no group of Config", title)
	}
}

// groupOf returns the heading of a flag, "" if it has none.
func groupOf(name string) string {
	for _, group := range flagGroups {
		if slices.Contains(group.names, name) {
			return group.title
		}
	}
	return ""
}
