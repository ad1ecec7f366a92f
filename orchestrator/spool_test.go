package orchestrator_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestSpoolSurvivesPowerLoss: the copy of a stream that cannot be repeated is kept until the
// results are durable. A power loss takes the results that are not, and the job resumes without
// the stream.
func TestSpoolSurvivesPowerLoss(t *testing.T) {
	t.Parallel()
	text := mixed(200)
	d := newJobDir(t, text)
	c := slowJob(d)
	want := c
	want.Output.Path = d.join("want.jsonl")
	mustRun(t, d, want)
	c.Input.Path, c.Input.ChunkRecords, c.Input.Stdin, c.Resume.Spool = "-", 20, strings.NewReader(text), true
	c = orchestrator.WithDurableEvery(c, time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lost := t.TempDir() // the job folder as a power loss leaves it
	running := c
	watch(&running, func(name string, _ int, _ orchestrator.Event) {
		folder := d.join("out.jsonl.gpurun")
		chunks, _ := os.ReadFile(filepath.Join(folder, "input.chunks"))
		partial, _ := os.Stat(filepath.Join(folder, "output.partial"))
		if ctx.Err() != nil || name != "chunk_done" || !strings.Contains(string(chunks), `"end"`) || partial == nil || partial.Size() == 0 {
			return
		}
		// Of what the job has written, only this was synced: neither parts nor the output.
		copyFiles(t, lost, folder, "job.json", "journal", "input.chunks", "spool/*")
		cancel()
	})
	_, err := runContext(t, ctx, running)
	wantFault(t, err, fault.Canceled)
	if err := os.RemoveAll(d.join("out.jsonl.gpurun")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(d.join("out.jsonl.gpurun"), os.DirFS(lost)); err != nil {
		t.Fatal(err)
	}
	c.Input.Stdin = strings.NewReader("")
	mustRun(t, d, c)
	if d.read("out.jsonl") != d.read("want.jsonl") {
		t.Error("the output differs from that of a file")
	}
}

// copyFiles copies the files of a folder that match patterns.
func copyFiles(t *testing.T, to, from string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(filepath.Join(from, pattern))
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				continue // it was removed meanwhile
			}
			copied := filepath.Join(to, strings.TrimPrefix(path, from))
			if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(copied, data, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
}
