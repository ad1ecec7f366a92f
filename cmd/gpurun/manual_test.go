package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/explain"
)

// TestManualPages: gpurun explain names pages and sections that gpurun manual has.
func TestManualPages(t *testing.T) {
	for _, name := range append(manualNames(), "troubleshooting") {
		if _, err := manualPage(name); err != nil {
			t.Error(err)
		}
	}
	for _, area := range explain.Areas() {
		for _, entry := range area.Entries {
			if _, err := manualPage(entry.Page); err != nil {
				t.Errorf("%s: %v", entry.Title, err)
			}
		}
	}
}

// TestManualHasTheExamples: every installation can list, show and copy the examples.
func TestManualHasTheExamples(t *testing.T) {
	list, err := manualPage("examples")
	if err != nil {
		t.Fatal(err)
	}
	readmes, err := filepath.Glob("../../examples/*/README.md")
	if err != nil || len(readmes) < 10 {
		t.Fatalf("%d examples, %v", len(readmes), err)
	}
	for _, readme := range readmes {
		source := filepath.Dir(readme)
		name := filepath.Base(source)
		if !strings.Contains(list, "("+name+")") {
			t.Errorf("the list lacks %s", name)
		}
		text, err := manualPage("examples/" + name)
		if name == "go-etl" || name == "cuda-kernel" { // modules of Go
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(text, "# ") || strings.Contains(text, "<!--") {
			t.Errorf("%s: %v: %.100s", name, err, text)
		}
		folder := filepath.Join(t.TempDir(), "copy")
		if err := copyExample("examples/"+name+"/", folder); err != nil {
			t.Error(err)
		}
		for _, pattern := range []string{"*.py", "*.sh", "*.md"} {
			files, _ := filepath.Glob(filepath.Join(source, pattern))
			for _, file := range files {
				want, _ := os.ReadFile(file)
				if got, err := os.ReadFile(filepath.Join(folder, filepath.Base(file))); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s was not copied: %v", file, err)
				}
			}
		}
		if err := copyExample("examples/"+name, folder); err == nil {
			t.Errorf("%s was copied over a copy", name)
		}
	}
	if text, err := manualPage("examples/etl/clean.py"); err != nil || !strings.Contains(text, "def process") {
		t.Errorf("%v: %.100s", err, text)
	}
	if _, err := manualPage("examples/etll"); err == nil || !strings.Contains(err.Error(), "did you mean examples/etl") {
		t.Errorf("a typo: %v", err)
	}
	for _, page := range []string{"", "failures", "examples", "examples/job.yaml"} {
		if err := copyExample(page, filepath.Join(t.TempDir(), "copy")); err == nil {
			t.Errorf("%q was copied", page)
		}
	}
}
