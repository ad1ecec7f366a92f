package orchestrator_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// unequal returns n records with texts of random lengths; special replaces some lines.
func unequal(n int, special map[int]string) string {
	random := rand.New(rand.NewPCG(7, uint64(n)))
	var b strings.Builder
	for i := range n {
		line, replaced := special[i]
		if !replaced {
			line = fmt.Sprintf(`{"id":%d,"size":%d,"text":%q}`, i, random.IntN(1000), strings.Repeat("é", random.IntN(60)))
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// TestGroupedOutputIsTheSame: for every kind of kernel, whatever it does to records, the
// output of grouped records equals the output of records in input order.
func TestGroupedOutputIsTheSame(t *testing.T) {
	t.Parallel()
	const kernel = `
import json
def process(batch):
    return [None if r.get("do") == "drop" else [r, {"id": r.get("id")}] if r.get("do") == "two" else {"n": len(r.get("text", ""))} for r in batch]
`
	const columns = `
group_by = "text"
def process(batch):
    return {"length": [len(text or "") for text in batch["text"]]}
`
	poisoned := map[int]string{33: `{"poison":"error","text":"abcdef"}`, 80: `{"poison":"exit"}`, 81: `{"poison":"fail","text":"a"}`, 300: `{"poison":"invalid"}`, 310: "no JSON"}
	shaped := map[int]string{5: `{"do":"drop"}`, 6: `{"do":"two","text":"xyz"}`, 7: "[1,2]", 90: `{"do":"two"}`, 91: "\n", 200: `{"do":"fail","text":"tt"}`}
	for name, test := range map[string]struct {
		kernel string
		input  string
		by     string // default text
		change func(c *orchestrator.Config)
	}{
		"echo":              {kernel: "echo", input: unequal(400, nil)},
		"drops and doubles": {kernel: "test-work", input: unequal(400, shaped)},
		"deferred":          {kernel: "test-late", input: unequal(400, nil)},
		"poison":            {kernel: "test-poison", input: unequal(400, poisoned)},
		"a number":          {kernel: "test-work", input: unequal(400, shaped), by: "size"},
		"a program":         {kernel: `exec:sed -u s/^/\ /`, input: unequal(300, nil)},
		"Python":            {kernel: kernel, input: unequal(300, shaped)},
		"Python, asks":      {kernel: columns, input: unequal(300, map[int]string{8: "[1]"}), by: "kernel"},
		"not validated": {kernel: "echo", input: unequal(400, map[int]string{9: "no JSON"}), change: func(c *orchestrator.Config) {
			c.Input.NoValidate = true
		}},
		"batch size by trial": {kernel: "test-work", input: unequal(4000, nil), change: func(c *orchestrator.Config) {
			c.Batching.Size, c.Batching.Auto = 2, true
		}},
		"kept members": {kernel: "test-work", input: unequal(400, shaped), change: func(c *orchestrator.Config) {
			c.Output.Keep = []string{"id"}
		}},
		"a cost": {kernel: "test-work", input: unequal(400, shaped), change: func(c *orchestrator.Config) {
			if c.Batching.GroupBy != orchestrator.NoGrouping {
				c.Batching.Cost = 90
			}
		}},
		"a long record": {kernel: "echo", input: unequal(100, map[int]string{50: `{"text":"` + strings.Repeat("x", 300<<10) + `"}`}), change: func(c *orchestrator.Config) {
			c.Batching.Bytes, c.Input.MaxRecordBytes = 1000, 200<<10
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			python := strings.Contains(test.kernel, "def process")
			if python && !hasPython() {
				t.Skip("no Python")
			}
			by := cmp.Or(test.by, "text")
			if by == "kernel" {
				by = ""
			}
			var files [2]map[string]string
			for i, by := range []string{orchestrator.NoGrouping, by} {
				d := newJobDir(t, test.input)
				c := d.config(test.kernel)
				if python {
					d.write("kernel.py", test.kernel)
					c.Kernel.Name, c.Dir = "kernel.py", d.path
				}
				c.Batching.Size, c.Batching.GroupBy = 8, by
				if test.change != nil {
					test.change(&c)
				}
				report := mustRun(t, d, c)
				files[i] = results(d, c)
				if grouped := report.GroupBy != ""; grouped != (i == 1) || grouped != (report.Padding > 0) {
					t.Errorf("grouped by %q, padding %.2f", report.GroupBy, report.Padding)
				}
			}
			if diff := differences(files[0], files[1]); diff != "" {
				t.Errorf("(-in input order +grouped)\n%s", diff)
			}
		})
	}
}

// TestOutOfMemoryShrinksTheCost: a device with room for a cost, not for a number of records.
func TestOutOfMemoryShrinksTheCost(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, unequal(600, nil))
	c := d.config("test-volume")
	c.Devices.GPUs, c.Batching.Size, c.Batching.GroupBy, c.Kernel.Config = "cpu:1", 32, "text", fmt.Appendf(nil, `{"Room":1200,"Log":%q}`, d.join("log"))
	report := mustRun(t, d, c)
	if report.Failed > 0 || d.read("out.jsonl") != d.read("in.jsonl") {
		t.Errorf("%d failed", report.Failed)
	}
	refused, small, all := 0, 0, 0
	for _, line := range strings.Fields(d.read("log")) {
		switch all++; line {
		case "false":
			refused++
		case "32":
			small++
		}
	}
	// The search finds the cost once; batches of short texts stay full.
	if refused == 0 || refused > all/6 || small == 0 {
		t.Errorf("%d of %d batches did not fit, %d were full", refused, all, small)
	}
}

// TestStopDoesNotWaitForAWindow: a job that stops in the middle of a window of slow batches
// ends with what is finished, and resumes to the same output, grouped or not.
func TestStopDoesNotWaitForAWindow(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{"grouped": "text", "in input order": orchestrator.NoGrouping, "by another member": "id"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, unequal(400, nil))
			c := d.config("test-work")
			c.Devices.GPUs, c.Batching.Size, c.Batching.GroupBy, c.Kernel.Config = "cpu:1", 4, "text", []byte(`{"Milliseconds":40}`)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c.Display.OnEvent = func(e orchestrator.Event) {
				if p, ok := e.(orchestrator.Progress); ok && p.Job.Records >= 4 {
					time.AfterFunc(100*time.Millisecond, cancel) // in the next window, of 640 ms
				}
			}
			report, err := runContext(t, ctx, c)
			if fault.KindOf(err) != fault.Canceled || report.Pending == 0 || report.Pending == 400 {
				t.Fatalf("%v, %d pending", err, report.Pending)
			}
			c.Display.OnEvent, c.Batching.GroupBy, c.Kernel.Config = nil, next, []byte(`{}`)
			c.Resume.AcceptChanges = []string{"config"}
			if report = mustRun(t, d, c); report.Resumed == 0 {
				t.Error("it did not resume")
			}
			clean := newJobDir(t, unequal(400, nil))
			mustRun(t, clean, clean.config("test-work"))
			if got, want := d.read("out.jsonl"), clean.read("out.jsonl"); got != want {
				t.Error(differences(want, got))
			}
		})
	}
}

// TestGroupsInThePlan: the user's member goes before the kernel's, a cost needs one, and
// chunks hold whole windows if there are enough records.
func TestGroupsInThePlan(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, unequal(3000, nil))
	plan := func(change func(c *orchestrator.Config)) (orchestrator.Plan, error) {
		c := d.config("echo")
		c.Batching.Size = 4
		change(&c)
		return orchestrator.MakePlan(t.Context(), c)
	}
	none, err := plan(func(*orchestrator.Config) {})
	if err != nil || none.GroupBy != "" || none.ChunkRecords != 96 {
		t.Errorf("without: %q, chunks of %d, %v", none.GroupBy, none.ChunkRecords, err)
	}
	some, err := plan(func(c *orchestrator.Config) { c.Batching.GroupBy = "text" })
	if err != nil || some.GroupBy != "text" || some.ChunkRecords != 128 {
		t.Errorf("with: %q, chunks of %d, %v", some.GroupBy, some.ChunkRecords, err)
	}
	few, err := plan(func(c *orchestrator.Config) { c.Batching.GroupBy, c.Input.Limit = "text", 300 })
	if err != nil || few.Chunks != 4 {
		t.Errorf("few: %d chunks, %v", few.Chunks, err)
	}
	if _, err := plan(func(c *orchestrator.Config) { c.Batching.Cost = 7 }); fault.KindOf(err) != fault.Usage {
		t.Errorf("a cost without groups: %v", err)
	}
	if hasPython() {
		if err := os.WriteFile(d.join("k.py"), []byte("group_by = 'text'\ndef process(batch): return batch\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		for by, want := range map[string]string{"": "text", "id": "id", orchestrator.NoGrouping: ""} {
			got, err := plan(func(c *orchestrator.Config) { c.Kernel.Name, c.Batching.GroupBy = d.join("k.py"), by })
			if err != nil || got.GroupBy != want {
				t.Errorf("with %q: %q, %v", by, got.GroupBy, err)
			}
		}
	}
}
