package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

func TestMisspelledVariablesAreFound(t *testing.T) {
	known := knownVariables(newRoot())
	for name, want := range map[string]string{
		"GPURUN_BATCHSIZE":  "GPURUN_BATCH_SIZE",
		"GPURUN_BATHC_SIZE": "GPURUN_BATCH_SIZE",
		"GPURUN_PLUGINPATH": "GPURUN_PLUGIN_PATH",
		"GPURUN_BIN":        "", // not GPURUN_PIN
		"GPURUN_HOME":       "",
		"GPURUN_VERSION":    "",
	} {
		if got := meantVariable(name, known); got != want {
			t.Errorf("%s: %q instead of %q", name, got, want)
		}
	}
}

// TestOwnVariablesAreNoMisspellings: gpurun may run inside a kernel and inherit the
// variables that its parents set.
func TestOwnVariablesAreNoMisspellings(t *testing.T) {
	known := knownVariables(newRoot())
	for _, name := range []string{
		"GPURUN_ARENA", "GPURUN_INLINE", "GPURUN_KERNEL", "GPURUN_KERNEL_CONFIG", "GPURUN_WORKER_MARK",
		"GPURUN_CRASH_AT", "GPURUN_CRASH_ONCE", "GPURUN_TEST_COMMAND", "GPURUN_SOAK_KILLS", "GPURUN_PROGRAM",
	} {
		for _, message := range misspelled([]string{name + "=1"}, known) {
			t.Error(message)
		}
	}
}

// TestVariablesOfTestsAreNoMisspellings: gpurun inherits the variables that make targets and
// tests set.
func TestVariablesOfTestsAreNoMisspellings(t *testing.T) {
	names := make(map[string]bool)
	collect := func(pattern string, name *regexp.Regexp) {
		paths, err := filepath.Glob("../../" + pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range name.FindAllStringSubmatch(string(text), -1) {
				names[match[1]] = true
			}
		}
	}
	for _, pattern := range []string{"Makefile", ".ci/run", "scripts/*.sh"} {
		collect(pattern, regexp.MustCompile(`\b(GPURUN_[A-Z_]+)\b`))
	}
	for _, pattern := range []string{"*/*_test.go", "*/*/*_test.go", "*/*/*/*_test.go"} {
		collect(pattern, regexp.MustCompile(`Getenv\("(GPURUN_[A-Z_]+)"\)`))
	}
	if !names["GPURUN_TEST_ALL"] || !names["GPURUN_SOAK_KILLS"] {
		t.Fatalf("found only %v", slices.Sorted(maps.Keys(names)))
	}
	known := knownVariables(newRoot())
	for name := range names {
		for _, message := range misspelled([]string{name + "=1"}, known) {
			t.Error(message)
		}
	}
}
