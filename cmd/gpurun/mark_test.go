package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/internal/trial"
)

// Editors on Windows start files with a byte order mark, so every JSON file may have one.
func TestFilesMayBeginWithAByteOrderMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("\ufeff{\"a\":1}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	sample := trial.Sample{Inputs: []string{path}, Count: 2}
	if err := sample.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if records, err := sample.Lines(); err != nil || len(records) != 1 || records[0] != `{"a":1}` {
		t.Errorf("a sample: %q, %v", records, err)
	}
	if config, err := readConfig("--kernel-config", path); err != nil || string(config) != "{\"a\":1}\n" {
		t.Errorf("a configuration: %q, %v", config, err)
	}
}
