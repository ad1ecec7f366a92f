package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestNoResults: without a result there is a layout nevertheless. A retry that succeeds decides
// it anew.
func TestNoResults(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, `{"id":1,"do":"fail"}`+"\n"+`{"id":2,"do":"fail","x":1}`+"\n"+`no JSON`+"\n")
	c := d.config("test-vectors")
	c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("v.npy")}}
	mustRun(t, d, c)
	if diff := differences([][]float64{{0}, {0}, {0}}, loadArray(t, d.join("v.npy"))); diff != "" {
		t.Error(diff)
	}
	again := c
	again.Kernel.Config = []byte(`{"Fixed":true}`)
	if _, err := orchestrator.Retry(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	rows := loadArray(t, d.join("v.npy"))
	if diff := differences([][]float64{{2, 2.125, 2.25}, {0, 0, 0}}, rows[1:]); diff != "" {
		t.Error(diff)
	}
	if diff := differences([][]float64{{0}, {0}, {1}}, loadArray(t, d.join("v.mask.npy"))); diff != "" {
		t.Error(diff)
	}

	table := c
	table.Output.Arrays, table.Output.Path = nil, d.join("out.parquet")
	mustRun(t, d, table)
	if rows := tableLines(t, d.join("out.parquet")); len(rows) != 3 || rows[0]["_error"] == nil {
		t.Errorf("%v", rows)
	}
	// A retry in which nothing succeeds either changes nothing; the next one decides.
	for _, config := range []string{`{}`, `{"Fixed":true}`} {
		again.Kernel.Config = []byte(config)
		if _, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: table.Output.Path}, Kernel: orchestrator.Kernel{Config: []byte(config)}, Devices: c.Devices}); err != nil {
			t.Fatal(err)
		}
		rows := tableLines(t, d.join("out.parquet"))
		if fixed := config != `{}`; len(rows) != 3 || (rows[1]["vector"] != nil) != fixed || (rows[1]["_error"] == nil) != fixed || rows[1]["x"] != 1.0 || rows[2]["_error"] == nil {
			t.Errorf("%s: %v", config, rows)
		}
	}
}

// TestRetryMoved: the arrays of a job that was moved are those beside its output.
func TestRetryMoved(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, `{"id":1}`+"\n"+`{"id":2,"do":"fail"}`+"\n")
	for _, name := range []string{"old", "new", "apart"} {
		if err := os.Mkdir(d.join(name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c := d.config("test-vectors")
	c.Output.Path = d.join("old/out.jsonl")
	c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("old/v.npy")}}
	mustRun(t, d, c)
	for _, name := range []string{"out.jsonl", "out.jsonl.gpurun", "v.npy", "v.mask.npy"} {
		if err := os.Rename(d.join("old/"+name), d.join("new/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	retried := orchestrator.Config{Output: orchestrator.Output{Path: d.join("new/out.jsonl")}, Kernel: orchestrator.Kernel{Config: []byte(`{"Fixed":true}`)}, Devices: c.Devices}
	if _, err := orchestrator.Retry(t.Context(), retried); err != nil {
		t.Fatal(err)
	}
	if diff := differences([][]float64{{2, 2.125, 2.25}}, loadArray(t, d.join("new/v.npy"))[1:]); diff != "" {
		t.Error(diff)
	}
	status, err := orchestrator.Inspect(retried.Output.Path, "")
	if err == nil {
		err = orchestrator.Verify(t.Context(), retried.Output.Path, status.Report)
	}
	if err != nil {
		t.Error(err)
	}

	c.Output.Path, c.Output.Arrays[0].Path = d.join("old/out2.jsonl"), d.join("apart/v.npy")
	mustRun(t, d, c)
	for _, name := range []string{"out2.jsonl", "out2.jsonl.gpurun"} {
		if err := os.Rename(d.join("old/"+name), d.join("new/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	retried.Output.Path = d.join("new/out2.jsonl")
	_, err = orchestrator.Retry(t.Context(), retried)
	wantFault(t, err, fault.Conflict, "is outside the output's folder")
}

// TestRetryColumns: a retry gives what the job would have given had nothing failed, and it
// can be killed at any point.
func TestRetryColumns(t *testing.T) {
	t.Parallel()
	for _, v := range []*variant{derive("arrays"), derive("a table"), derive("an Arrow table"), derive("tables"),
		{name: "arrays, errors apart", change: func(d jobDir, c *orchestrator.Config) {
			derive("arrays").change(d, c)
			c.Output.Errors = d.join("errors.jsonl")
		}},
		{name: "arrays beside parts", change: func(d jobDir, c *orchestrator.Config) {
			derive("arrays").change(d, c)
			c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 3000
		}},
		{name: "parquet, errors apart", change: func(d jobDir, c *orchestrator.Config) {
			derive("a table").change(d, c)
			c.Output.Errors = d.join("errors.jsonl")
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			job := func(config string) (jobDir, orchestrator.Config) {
				d := newJobDir(t, mixed(300))
				c := orchestrator.WithUnitBytes(d.config("test-vectors"), 2000)
				c.Batching.Size, c.Kernel.Config = 16, []byte(config)
				v.change(d, &c)
				mustRun(t, d, c)
				return d, c
			}
			want, wc := job(`{"Fixed":true}`)
			d, c := job(`{}`)
			c.Kernel.Config = []byte(`{"Fixed":true}`)
			report, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Kernel: orchestrator.Kernel{Config: c.Kernel.Config}, Devices: c.Devices})
			if err != nil {
				t.Fatalf("%v\n%s", err, d.logs())
			}
			checkReport(t, report, nil)
			if err := orchestrator.Verify(t.Context(), c.Output.Path, report); err != nil {
				t.Error(err)
			}
			compareJobs(t, want, wc, d, c)
			if a, b := unencoded(t, wc), unencoded(t, c); a != b {
				t.Errorf("the parts have %d bytes before encoding instead of %d", b, a)
			}
		})
	}
}

// unencoded returns how many bytes all parts of an output have before encoding, 0 for a file.
func unencoded(t *testing.T, c orchestrator.Config) (bytes int64) {
	t.Helper()
	if !strings.HasSuffix(c.Output.Path, "/") {
		return 0
	}
	m, err := commit.ReadManifest(c.Output.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range m.Parts {
		bytes += part.Unencoded
	}
	return bytes
}

// compareJobs compares what two jobs have written.
func compareJobs(t *testing.T, want jobDir, wc orchestrator.Config, d jobDir, c orchestrator.Config) {
	t.Helper()
	for _, a := range c.Output.Arrays {
		for _, name := range []string{filepath.Base(a.Path), strings.TrimSuffix(filepath.Base(a.Path), ".npy") + ".mask.npy"} {
			if exists(want.join(name)) && want.read(name) != d.read(name) {
				t.Errorf("%s differs", name)
			}
		}
	}
	if c.Output.Errors != "" && want.read("errors.jsonl") != d.read("errors.jsonl") {
		t.Error("the failed records differ")
	}
	if strings.Contains(c.Output.Path, ".parquet") || c.Output.Format == "parquet" || strings.HasSuffix(c.Output.Path, ".arrow") {
		files := func(c orchestrator.Config) []string {
			if paths, _ := filepath.Glob(c.Output.Path + "part-*"); len(paths) > 0 {
				return paths
			}
			return []string{c.Output.Path}
		}
		if diff := differences(tableLines(t, files(wc)...), tableLines(t, files(c)...)); diff != "" {
			t.Error(diff)
		}
	}
	failures := func(d jobDir, c orchestrator.Config) (all []string) {
		for line := range strings.Lines(d.read(strings.TrimPrefix(jobFolder(c), d.path+"/") + "/failures.jsonl")) {
			var f struct{ At, Size, Record int64 }
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(f))
		}
		return all
	}
	if diff := differences(failures(want, wc), failures(d, c)); diff != "" {
		t.Errorf("positions of failures: %s", diff)
	}
}
