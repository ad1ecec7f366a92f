package progress

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// file returns a file to display in, and a function that returns what was shown.
func file(t *testing.T) (*os.File, func() string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, func() string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// play sends one event of each type, in a sensible order.
func play(d Display) {
	all := allEvents()
	for _, name := range []string{"planned", "notice", "worker_started", "worker_phase", "worker_ready", "chunk_started", "progress",
		"worker_lost", "chunk_given_up", "chunk_done", "stopping", "finished"} {
		d.Event(all[name])
	}
}

func TestQuietShowsOnlyTrouble(t *testing.T) {
	f, shown := file(t)
	d := watch(Options{Stderr: f, Quiet: true})
	play(d)
	_, _ = io.WriteString(d, "a log line\n")
	d.Close()
	d.Close()
	want := `GPU 1: line one line two; trying the device again in 30s
  | red
records 5 to 9 are marked as failed: line one line two
stopping: waiting up to 20s for batches in flight (the second SIGINT or SIGTERM stops immediately)
a log line
`
	if got := shown(); got != want {
		t.Errorf("shown: %q, want %q", got, want)
	}
}

func TestFilesGetLines(t *testing.T) {
	f, shown := file(t)
	if IsTerminal(f) {
		t.Fatal("a file is a terminal")
	}
	d := watch(Options{Stderr: f})
	if _, ok := d.Display.(*lines); !ok {
		t.Errorf("a file gets %T", d)
	}
	play(d)
	d.Close()
	want := `10 records, batches of 1, 2 workers: GPU 0, GPU 1
two lines
GPU 1: line one line two; trying the device again in 30s
  | red
records 5 to 9 are marked as failed: line one line two
stopping: waiting up to 20s for batches in flight (the second SIGINT or SIGTERM stops immediately)
`
	if got := shown(); got != want {
		t.Errorf("shown: %q, want %q", got, want)
	}
}

func TestEventsApart(t *testing.T) {
	f, shown := file(t)
	var events bytes.Buffer
	d := watch(Options{Stderr: f, Quiet: true, Events: &events})
	play(d)
	d.Close()
	if got := strings.Count(events.String(), "\n"); got != len(allEvents()) {
		t.Errorf("%d events were written of %d", got, len(allEvents()))
	}
	if !strings.HasPrefix(shown(), "GPU 1: ") {
		t.Errorf("shown: %q", shown())
	}
}

// With events on standard error, nothing but JSON is written there.
func TestEventsOnStderrStandAlone(t *testing.T) {
	for _, silent := range []bool{true, false} {
		f, shown := file(t)
		d := watch(Options{Stderr: f, Quiet: silent, Events: f})
		play(d)
		_, _ = io.WriteString(d, "a log line\n")
		d.Close()
		lines := strings.Split(strings.TrimSpace(shown()), "\n")
		if len(lines) != len(allEvents()) {
			t.Errorf("%d lines for %d events", len(lines), len(allEvents()))
		}
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
}

// A display without a job, as after a usage error.
func TestCloseWithoutEvents(t *testing.T) {
	for _, options := range []Options{{}, {Quiet: true}} {
		f, shown := file(t)
		options.Stderr = f
		d := watch(options)
		d.Close()
		d.Close()
		d.Event(orchestrator.WorkerLost{Device: "GPU 0", Fault: fault.New(fault.Worker, "late")})
		if got := shown(); got != "GPU 0: late; starting another worker\n" {
			t.Errorf("shown: %q", got)
		}
	}
}
