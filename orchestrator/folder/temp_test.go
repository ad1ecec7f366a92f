package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// TestLongTempFolderIsReported: a TMPDIR that leaves no room for a socket's name is not
// used, and the user is notified; a shorter one is used.
func TestLongTempFolderIsReported(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", maxTempPath))
	for dir, used := range map[string]bool{long: false, shortTemp: true} {
		t.Setenv("TMPDIR", dir)
		path, short, err := MakeTemp(func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(path)
		if used != (short == "") || !used && !strings.Contains(short, "TMPDIR "+dir+" is too long") {
			t.Errorf("%s: made %s, reported %q", dir, path, short)
		}
	}
}

// TestUnwritableTempFolder: the message names the setting to change.
func TestUnwritableTempFolder(t *testing.T) {
	t.Setenv("TMPDIR", "/proc/none")
	_, _, err := MakeTemp(func(string) {})
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR to a writable folder") {
		t.Errorf("error %v", err)
	}
}

// TestUnwritableStateFolder: the output is a stream, and the job has nowhere to keep
// its files; the message says how to name another place.
func TestUnwritableStateFolder(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/proc/none")
	s, err := spec.Resolve(spec.Config{Input: spec.Input{Path: "-"}, Output: spec.Output{Path: "-"}, Kernel: spec.Kernel{Name: "echo"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), s, func(string) {})
	if e := fault.As(err); e == nil || e.Value != "work-dir" {
		t.Errorf("error %v", err)
	}
}

// Folders that killed processes have left are removed, if they are empty and old.
