package main

import "testing"

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
