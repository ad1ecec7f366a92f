package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gpurun/gpurun/internal/jobfile"
)

var update = flag.Bool("update", false, "write the published schema")

const publishedSchema = "../../docs/job-file.schema.json"

// TestJobFileSchema: the published schema is the one that the flags give.
func TestJobFileSchema(t *testing.T) {
	want := jobSchema()
	if *update {
		if err := os.WriteFile(publishedSchema, want, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(publishedSchema)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): run go test ./cmd/gpurun -run TestJobFileSchema -update", publishedSchema, err)
	}
}

// TestEveryFlagIsASetting: a job file can contain whatever run can be given.
func TestEveryFlagIsASetting(t *testing.T) {
	settings := jobSettings()
	names := make(map[string]jobfile.Setting)
	for _, s := range settings {
		if _, twice := names[s.Name]; twice {
			t.Errorf("%s is a setting twice", s.Name)
		}
		names[s.Name] = s
	}
	flags := newRun().Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		s, ok := names[f.Name]
		if ok == slices.Contains(notInJobFile, f.Name) {
			t.Errorf("--%s: in job files %t", f.Name, ok)
		}
		if !ok {
			return
		}
		// A default that is written down is accepted, and kinds have no gap.
		if s.Default != "" {
			if _, err := jobfile.Parse("job.yaml", []byte(jobfile.Pair(s.Name, s.Kind, jobfile.Value{Texts: []string{s.Default}})), settings); err != nil {
				t.Errorf("--%s: its default: %v", f.Name, err)
			}
		}
		known := []string{"string", "bool", "int", "int64", "duration", "size", "stringSlice", "stringArray"}
		if kind, _, _ := strings.Cut(f.Value.Type(), "|"); !slices.Contains(known, kind) {
			t.Errorf("--%s has type %s: say in flagSetting which values a job file takes for it", f.Name, kind)
		}
	})
	for _, list := range [][]string{pathFlags, closedFlags} {
		for _, name := range list {
			if flags.Lookup(name) == nil {
				t.Errorf("--%s does not exist", name)
			}
		}
	}
}

// TestPathFlags: a flag whose help calls its value a file or folder is relative to a job
// file.
func TestPathFlags(t *testing.T) {
	placeholder := regexp.MustCompile("`[^`]*(FILE|FOLDER|PATH)[^`]*`")
	newRun().Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInJobFile, f.Name) {
			return
		}
		if isPath := placeholder.MatchString(f.Usage); isPath != slices.Contains(pathFlags, f.Name) {
			t.Errorf("--%s: its help says that it takes a path: %t; pathFlags contains it: %t", f.Name, isPath, !isPath)
		}
	})
}

// TestRelativeTo: paths in a job file become relative to the current folder.
func TestRelativeTo(t *testing.T) {
	for _, test := range [][3]string{
		{"", "a", "a"}, {"d", "a", "d/a"}, {"d", "out/", "d/out/"}, {"d", "-", "-"}, {"d", "/a", "/a"}, {"../d", "./a", "../d/a"}, {"d", "", ""},
	} {
		if got := relativeTo(test[0], test[1]); got != test[2] {
			t.Errorf("%s relative to %s: %s, want %s", test[1], test[0], got, test[2])
		}
	}
	if got := inputPath("d", "@list.txt"); got != "@d/list.txt" {
		t.Error(got)
	}
}
