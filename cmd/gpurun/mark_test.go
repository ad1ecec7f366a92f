package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Editors on Windows start files with a byte order mark, so every JSON file may have one.
func TestFilesMayBeginWithAByteOrderMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("\ufeff{\"a\":1}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if records, err := readSample(path); err != nil || len(records) != 1 || records[0] != `{"a":1}` {
		t.Errorf("a sample: %q, %v", records, err)
	}
	if config, err := readConfig("--kernel-config", path); err != nil || string(config) != "{\"a\":1}\n" {
		t.Errorf("a configuration: %q, %v", config, err)
	}
}
