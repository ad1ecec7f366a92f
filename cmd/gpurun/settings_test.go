package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

func TestEverySettingHasAHeading(t *testing.T) {
	names := make(map[string]bool)
	for _, s := range jobSettings {
		if !slices.Contains(headings, s.Group) || s.Help == "" || names[s.Name] {
			t.Errorf("%s has the heading %q and the help %q, or is there twice", s.Name, s.Group, s.Help)
		}
		names[s.Name] = true
	}
	cmd, _, err := newRoot().Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	if help := flagsHelp(cmd); !strings.HasPrefix(help, "Common flags:\n  -f, --job-file") || strings.Count(help, "\n") > 14 {
		t.Errorf("the help is %s", help)
	}
	if err := cmd.Flags().Set(helpAll, "true"); err != nil {
		t.Fatal(err)
	}
	help := flagsHelp(cmd)
	if !strings.HasPrefix(help, "Job file:\n  -f, --job-file") {
		t.Errorf("the help begins with %.100s", help)
	}
	for name := range names {
		if flag := cmd.Flags().Lookup(name); flag != nil && !strings.Contains(help, "--"+name+" ") {
			t.Errorf("the help does not list --%s", name)
		}
	}
}

// The groups of orchestrator.Config are the headings of the flags.
func TestHeadingsAreGroupsOfConfig(t *testing.T) {
	headings := make(map[string]bool)
	for _, s := range spec.Settings {
		headings[s.Group] = true
	}
	delete(headings, spec.GroupResume)
	headings["Resume"], headings["Program"] = true, true // the latter is of embedding programs
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
