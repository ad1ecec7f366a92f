package orchestrator

import (
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// TestReportOfAnUnreadOutput: only what was appended counts.
func TestReportOfAnUnreadOutput(t *testing.T) {
	tally := func(n int64) *chunk.Tally { return &chunk.Tally{Counts: chunk.Counts{Records: n, Succeeded: n}} }
	counted := &input.Cut{Records: 1000, Sums: &input.Sums{}}
	in, err := input.Open([]input.Section{{Path: "in.jsonl", Cut: counted}}, input.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for unread, want := range map[bool]int64{false: 30, true: 10} {
		p := &prepared{config: &order{Spec: &spec.Spec{}}, earlier: folder.NewEarlier(), source: &source.Source{Source: in}}
		j := &job{prepared: p, folder: folder.At(""), committer: &committer{unread: unread}}
		j.committer.appended.Store(tally(10))
		if r := j.report(fleet.Report{Tally: *tally(30)}, 0); r.Succeeded != want || r.Pending != 1000-want {
			t.Errorf("unread %t: %+v", unread, r)
		}
	}
}
