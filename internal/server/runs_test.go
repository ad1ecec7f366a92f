package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
)

// TestServeShowsRuns: a host shows the shards of a run that machines share, what is wrong
// with them, and the metrics; also when the folder is removed meanwhile.
func TestServeShowsRuns(t *testing.T) {
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	t.Setenv(lease.Variable, t.TempDir())
	run, err := cluster.Create(cluster.Manifest{Output: filepath.Join(t.TempDir(), "out.jsonl"), Format: "jsonl", Shards: 4, Records: 40})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Work(t.Context(), cluster.Work{Shard: 1, Compute: func(_ context.Context, a *cluster.Attempt) (cluster.Result, error) {
		if a.Shard != 1 {
			return cluster.Result{}, fault.New(fault.Incompatible, "no module named torch")
		}
		return cluster.Result{Counts: chunk.Counts{Records: 10, Succeeded: 9, Failed: 1}, Rate: 5}, nil
	}})
	if fault.KindOf(err) != fault.Incompatible {
		t.Fatal(err)
	}
	h := NewHost(lease.DefaultConfig())
	h.ShowRuns([]*cluster.Watch{run.Watch(0)})
	h.runs[0].look(t.Context())
	handler := New(Access{Token: token}, h, metrics.New(h.Metrics()))
	ask := func(path string) string {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	var list RunList
	if err := json.Unmarshal([]byte(ask("/api/runs")), &list); err != nil || len(list.Runs) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	state := list.Runs[0]
	if state.Done != 10 || state.Failed != 1 || state.Shards[1].State != cluster.Done || state.Count(cluster.Failed) != 1 || state.Count(cluster.Pending) != 2 {
		t.Errorf("%+v", state)
	}
	if len(state.Nodes) != 1 || state.Nodes[0].Done != 1 || state.Nodes[0].Failed != 1 {
		t.Errorf("%+v", state.Nodes)
	}
	text := ask("/metrics")
	for _, want := range []string{`gpurun_run_shards{output="` + run.Output + `",state="failed"} 1`, "gpurun_run_records_done{", "gpurun_run_node_shards{"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if err := os.RemoveAll(run.Dir); err != nil {
		t.Fatal(err)
	}
	h.runs[0].look(t.Context())
	if err := json.Unmarshal([]byte(ask("/api/runs")), &list); err != nil || list.Runs[0].Trouble == "" || list.Runs[0].Done != 10 {
		t.Errorf("%+v, %v", list, err)
	}
}
