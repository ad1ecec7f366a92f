package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// replaces returns {"n": …} in place of a record, or what the record says in "return". It fails
// records with {"do":"fail"} unless it is fixed.
type replaces struct{ labour }

func (r *replaces) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		var record struct {
			ID     int
			Do     string
			Return json.RawMessage
		}
		_ = batch.Decode(i, &record)
		switch {
		case record.Do == "fail" && !r.config.Fixed:
			results.Fail(i, "rejected")
		case record.Return != nil:
			results.Line(i, record.Return)
		default:
			results.Line(i, fmt.Appendf(nil, `{"n":%d}`, record.ID))
		}
	}
	return nil
}

// TestColumnsKeepMembers: the chosen columns of a table have the members of the records also if
// the kernel replaces these, however many there are, and also after a retry.
func TestColumnsKeepMembers(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 63, 64, 200} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			const records = 5
			names := []string{"n:int64", "id:int64"}
			for k := range members {
				names = append(names, fmt.Sprintf("m%d", k))
			}
			var text []byte
			var want []map[string]any
			for id := range records {
				row := map[string]any{"id": float64(id), "n": float64(id), "_error": nil}
				in := map[string]any{"id": id, "other": true}
				for k := range members {
					name := fmt.Sprintf("m%d", k)
					row[name] = fmt.Sprint(id, " ", k)
					in[name] = row[name]
				}
				if id%2 == 1 {
					in["do"] = "fail"
				}
				line, err := json.Marshal(in)
				if err != nil {
					t.Fatal(err)
				}
				text, want = append(append(text, line...), '\n'), append(want, row)
			}
			d := newJobDir(t, string(text))
			c := d.config("test-replaces")
			c.Output.Path, c.Output.Columns, c.Batching.Size = d.join("out.parquet"), names, 2
			if report := mustRun(t, d, c); report.Failed != records/2 {
				t.Errorf("%d records failed", report.Failed)
			}
			rows := tableLines(t, c.Output.Path)
			for id := 0; id < records; id += 2 {
				if diff := differences(want[id], rows[id]); diff != "" {
					t.Errorf("row %d: %s", id, diff)
				}
			}
			again := orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Kernel: orchestrator.Kernel{Config: []byte(`{"Fixed":true}`)}, Devices: c.Devices}
			var notes []string
			again.Display.OnEvent = func(e orchestrator.Event) {
				if note, ok := e.(orchestrator.Notice); ok {
					notes = append(notes, note.Text)
				}
				if plan, ok := e.(orchestrator.Planned); ok {
					notes = append(notes, plan.Plan.Notes...)
				}
			}
			if _, err := orchestrator.Retry(t.Context(), again); err != nil {
				t.Fatal(err)
			}
			if diff := differences(want, tableLines(t, c.Output.Path)); diff != "" {
				t.Errorf("after a retry: %s", diff)
			}
			if len(notes) > 0 {
				t.Errorf("the retry notes %q", notes)
			}
		})
	}
}

// TestTableResultNotObject: a result that is not a JSON object fails its record, and that one
// only, in a job and in its retry, also if nothing but such results has decided the layout.
func TestTableResultNotObject(t *testing.T) {
	t.Parallel()
	input := `{"id":0,"return":5}` + "\n" + `{"id":1,"return":null}` + "\n" + `{"id":2,"return":"text"}` + "\n" + `{"id":3}` + "\n" +
		`{"id":4,"return":[{}]}` + "\n" + `{"id":5,"do":"fail","return":true}` + "\n" + `{"id":6,"do":"fail"}` + "\n"
	const notObject = "the result is not a JSON object: it has no columns"
	for _, test := range []struct {
		name   string
		change func(c *orchestrator.Config)
	}{
		{"one at a time", func(c *orchestrator.Config) { c.Batching.Size = 1 }},
		{"together", func(*orchestrator.Config) {}},
		{"chosen columns", func(c *orchestrator.Config) { c.Output.Columns = []string{"n:int64", "id"} }},
		{"unchecked", func(c *orchestrator.Config) { c.Input.NoValidate = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, input)
			c := d.config("test-replaces")
			c.Devices.GPUs, c.Output.Path = "cpu:1", d.join("out.parquet")
			test.change(&c)
			if report := mustRun(t, d, c); report.Succeeded != 1 || report.Failed != 6 {
				t.Errorf("%d records succeeded, %d failed", report.Succeeded, report.Failed)
			}
			check := func(when string, want ...any) {
				t.Helper()
				var got []any
				for _, row := range tableLines(t, c.Output.Path) {
					if mark, ok := row["_error"].(map[string]any); ok {
						got = append(got, mark["message"])
					} else {
						got = append(got, row["n"])
					}
				}
				if diff := differences(want, got); diff != "" {
					t.Errorf("%s: %s", when, diff)
				}
			}
			check("the job", notObject, notObject, notObject, 3.0, notObject, "rejected", "rejected")
			again := orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Kernel: orchestrator.Kernel{Config: []byte(`{"Fixed":true}`)}, Devices: c.Devices}
			if _, err := orchestrator.Retry(t.Context(), again); err != nil {
				t.Fatal(err)
			}
			check("the retry", notObject, notObject, notObject, 3.0, notObject, notObject, 6.0)
		})
	}
}

// TestTableOfInvalidRecords: records that nothing has validated fail if they are not objects.
func TestTableOfInvalidRecords(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, "5\n"+`{"id":1`+"\n"+`{"id":2} x`+"\n"+`{"id":3}`+"\n"+"[]\n")
	c := d.config("echo")
	c.Output.Path, c.Input.NoValidate = d.join("out.parquet"), true
	if report := mustRun(t, d, c); report.Succeeded != 1 || report.Failed != 4 {
		t.Errorf("%d records succeeded, %d failed", report.Succeeded, report.Failed)
	}
	if rows := tableLines(t, c.Output.Path); len(rows) != 5 || rows[3]["id"] != 3.0 {
		t.Errorf("%v", rows)
	}
}
