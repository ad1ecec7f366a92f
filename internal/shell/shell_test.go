package shell

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/internal/proc"
)

// Mistakes in a command are found before it runs.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, mode := range map[string]os.FileMode{"gpurun-test-script": 0o755, "plain": 0o644} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	folder, _ := filepath.Abs(".")
	for command, want := range map[string]string{
		"sleep 1": "", "./gpurun-test-script -x": "", "A=1 no-such-program": "", "cd / && no-such-program": "",
		"no-such-program -x": "run: program no-such-program not found",
		"gpurun-test-script": "write run:./gpurun-test-script",
		"./missing":          "program ./missing not found",
		"./plain":            "is not executable: chmod +x ./plain",
		folder:               "is a folder",
		"echo 'x":            "the shell cannot parse",
	} {
		err := Check("run", command)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}

// The shells that check commands are not orphans: what reaps those must not take their
// exit status.
func TestCheckBesideReaping(t *testing.T) {
	defer proc.ReapOrphans()()
	var checks errgroup.Group
	checks.SetLimit(4)
	for range 400 {
		checks.Go(func() error { return Check("run", "sleep 1") })
	}
	if err := checks.Wait(); err != nil {
		t.Error(err)
	}
}

// A single program replaces the shell.
func TestArgs(t *testing.T) {
	for command, replaces := range map[string]bool{"sleep 1": true, "sleep 1; true": false, "A=1 sleep 1": false, "cd /": false, "sleep 1 | cat": false} {
		if got := strings.HasPrefix(Args(command)[1], "exec "); got != replaces {
			t.Errorf("%s: %v", command, Args(command))
		}
	}
}

// The shell passes a signal on in its exit status.
func TestExit(t *testing.T) {
	for code, signal := range map[int]syscall.Signal{0: 0, 3: 0, 128: 0, 137: syscall.SIGKILL, 139: syscall.SIGSEGV, 255: 0} {
		if got := Exit(proc.Exit{Code: code}).Signal; got != signal {
			t.Errorf("status %d: %v", code, got)
		}
	}
}
