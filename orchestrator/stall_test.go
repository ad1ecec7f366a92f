package orchestrator_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// notices runs a job and returns the lines for the user.
func notices(t *testing.T, d jobDir, config orchestrator.Config) []string {
	t.Helper()
	var mu sync.Mutex
	var texts []string
	config.Display.OnEvent = func(event orchestrator.Event) {
		if notice, ok := event.(orchestrator.Notice); ok {
			mu.Lock()
			defer mu.Unlock()
			texts = append(texts, notice.Text)
		}
	}
	mustRun(t, d, config)
	mu.Lock()
	defer mu.Unlock()
	return texts
}

// TestStallIsReported: a kernel that does not respond to its first batch is reported to
// the user, once although there are several workers, with the kernel's own last line.
func TestStallIsReported(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(4))
	config := d.config("exec:echo I wait for the end >&2; sleep 2; cat")
	config.Batching.Size = 1
	config = orchestrator.WithStallAfter(config, 500*time.Millisecond)
	reported := 0
	for _, text := range notices(t, d, config) {
		if strings.Contains(text, "no response to the first batch after 500ms") {
			reported++
			if !strings.Contains(text, "I wait for the end") {
				t.Errorf("the notice is %q", text)
			}
		}
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
}

// TestNoStallOnceAnswered: later batches may take as long as --timeout allows.
func TestNoStallOnceAnswered(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(2))
	config := d.config("exec:read line; echo \"$line\"; sleep 3; cat")
	config.Kernel.ExecMode = "stream"
	config.Batching.Size, config.Devices.GPUs, config.Resume.Checkpoint = 1, "cpu:1", time.Hour
	config = orchestrator.WithStallAfter(config, 2*time.Second)
	for _, text := range notices(t, d, config) {
		if strings.Contains(text, "no response to the first batch") {
			t.Errorf("reported: %q", text)
		}
	}
}
