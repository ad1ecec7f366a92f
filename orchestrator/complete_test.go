package orchestrator_test

import (
	"os"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestReportOfRenamesIsThatOfTheJob: a job of which only the final renames were missing reports
// its output as the job itself would have, so that its shard can be merged.
func TestReportOfRenamesIsThatOfTheJob(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(20))
	config := d.config("echo")
	config.Output.Path, config.Output.Format = d.join("out.jsonl.gz"), "jsonl.gz"
	want := mustRun(t, d, config)

	config.Output.Path = d.join("other.jsonl.gz")
	var once sync.Once
	config.Display.OnEvent = func(orchestrator.Event) { once.Do(func() { d.write("other.jsonl.gz", "of another program") }) }
	_, err := run(t, config)
	wantFault(t, err, fault.Conflict, "now exists")
	if err := os.Remove(config.Output.Path); err != nil {
		t.Fatal(err)
	}
	config.Display.OnEvent = nil
	got := mustRun(t, d, config)
	if got.Unencoded != want.Unencoded || got.OutputBytes != want.OutputBytes || *got.OutputCRC32C != *want.OutputCRC32C {
		t.Errorf("got %d bytes of %d, want %d of %d", got.OutputBytes, got.Unencoded, want.OutputBytes, want.Unencoded)
	}
}
