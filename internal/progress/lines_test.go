package progress

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// eventually waits for another goroutine.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	out := &buffer{}
	job := newPlayed(time.Now)
	l := watched{newLines(out, 10*time.Millisecond, job.View), job}
	defer l.Close()
	time.Sleep(30 * time.Millisecond)
	if got := out.String(); got != "" {
		t.Errorf("before there is anything to tell: %q", got)
	}
	l.Event(orchestrator.Planned{Plan: orchestrator.Plan{Records: 400, Chunks: 4, Flight: "batches of 16", Slots: slots("CPU %d", 2)}})
	eventually(t, "a line with waiting workers", func() bool {
		return strings.Contains(out.String(), "0 of 400 records (0.0%), 2 workers: 2 waiting\n")
	})
	l.Event(orchestrator.WorkerStarted{Slot: 0})
	l.Event(orchestrator.WorkerReady{Slot: 0})
	l.Event(orchestrator.ChunkStarted{Slot: 0, Records: 100})
	l.Event(progressed(0, counts(95, 5), counts(95, 5), 400))
	eventually(t, "a line with failures", func() bool {
		return strings.Contains(out.String(), "100 of 400 records (25.0%), ") && strings.Contains(out.String(), ", 5 failed, 2 workers: 1 computing, 1 waiting\n")
	})
	l.Event(orchestrator.WorkerLost{Slot: 0, Device: "CPU 0", Fault: fault.New(fault.Worker, "gone")})
	if !strings.Contains(out.String(), "CPU 0: gone; starting another worker\n") {
		t.Errorf("no notice of the lost worker in %q", out.String())
	}
	if _, err := l.Write([]byte("a log line\n")); err != nil || !strings.HasSuffix(out.String(), "a log line\n") {
		t.Errorf("%v; no log line at the end of %q", err, out.String())
	}
	l.Close()
	l.Close() // once more does nothing
	got := out.String()
	time.Sleep(30 * time.Millisecond)
	if out.String() != got {
		t.Error("a line came after Close")
	}
	if first, _, _ := strings.Cut(got, "\n"); first != "400 records in 4 chunks, batches of 16, 2 workers: CPU 0, CPU 1" {
		t.Errorf("the first line is %q", first)
	}
}

// 100% is not shown before the last record is done.
func TestLineRoundsDown(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 100_000, Slots: slots("CPU %d", 1)}})
	s.at(0, progressed(0, counts(99_999, 0), counts(99_999, 0), 100_000))
	s.line("99,999 of 100,000 records (99.9%), 1 worker: 1 waiting")
	s.at(0, progressed(0, counts(1, 0), counts(1, 0), -1))
	s.line("1 record, 1 worker: 1 waiting")
	s.at(0, progressed(0, counts(0, 0), counts(0, 0), 0))
	s.line("0 of 0 records (100.0%), 1 worker: 1 waiting")
}

// A tiny rate gives an ETA that can be formatted.
func TestLineOfAStalledJob(t *testing.T) {
	s := &script{T: t}
	s.at(0, orchestrator.Planned{Plan: orchestrator.Plan{Records: 1 << 60, Slots: slots("CPU %d", 1)}}, orchestrator.ChunkStarted{Records: 1000})
	s.at(0.5, progressed(0, counts(1, 0), counts(1, 0), 1<<60))
	s.at(1000)
	s.line("1 of 1,152,921,504,606,846,976 records (0.0%), 0.0/s, ETA 9999h0m, 1 worker: 1 computing")
}
