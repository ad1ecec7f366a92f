package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

var update = flag.Bool("update", false, "write the published schema")

const publishedSchema = "../../docs/job-file.schema.json"

// TestJobFileSchema: the published schema is the one that the flags give.
func TestJobFileSchema(t *testing.T) {
	want := jobfile.Schema(jobSettings)
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

// TestDefaultsAreAccepted: a default that is written down is accepted.
func TestDefaultsAreAccepted(t *testing.T) {
	for _, s := range jobSettings {
		if s.Default == "" {
			continue
		}
		text := jobfile.Pair(s.Name, s.Kind, jobfile.Value{Texts: []string{s.Default}})
		if _, err := jobfile.Parse("job.yaml", []byte(text), jobSettings, checkSetting); err != nil {
			t.Errorf("%s: its default: %v", s.Name, err)
		}
	}
}

// TestPathSettings: a setting whose help calls its value a file or folder is relative to a job
// file.
func TestPathSettings(t *testing.T) {
	placeholder := regexp.MustCompile("FILE|FOLDER|PATH")
	for _, s := range jobSettings {
		if isPath := placeholder.MatchString(s.Value); s.Place == spec.Anywhere && isPath != (s.Path != nil) {
			t.Errorf("%s: its help says that it takes a path: %t", s.Name, isPath)
		}
	}
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
	if got := movePaths(inputSetting, []string{"@list.txt", "a"}, "d"); !slices.Equal(got, []string{"@d/list.txt", "d/a"}) {
		t.Error(got)
	}
}
