package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// numbersByWord returns columns of numbers, and other verdicts for records that ask for them.
type numbersByWord struct {
	plugins.Base
	both bool // two columns instead of one
	text bool // a column that stays in the lines, too
}

func (k numbersByWord) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	var v []float32
	var n []int64
	var s []string
	for i := range batch.Len() {
		size := len(batch.Record(i))
		v, n, s = append(v, float32(size), float32(i)/3), append(n, int64(size)), append(s, fmt.Sprint(i))
		switch record := batch.Record(i); {
		case bytes.Contains(record, []byte("drop")):
			results.Drop(i)
		case bytes.Contains(record, []byte("fail")):
			results.Fail(i, "no")
		case bytes.Contains(record, []byte("line")):
			results.Lines(i, []byte(`{"v":[1,2],"n":3}`), []byte(`{"n":4,"v":[5,6]}`))
		}
	}
	results.Column(plugins.Float32s("v", 2, v))
	if k.both {
		results.Column(plugins.Int64s("n", 0, n))
	}
	if k.text {
		results.Column(plugins.Strings("s", s))
	}
	return nil
}

// TestWriteStored: rows that are written as they lie in memory give the part that record by
// record gives.
func TestWriteStored(t *testing.T) {
	many := func(lines ...string) string { return strings.Repeat(strings.Join(lines, "\n")+"\n", 100) }
	const a, b = `{"id":1,"text":"` + "0123456789abcdef" + `"}`, `{"id": 2}`
	for _, test := range []struct {
		name, input string
		kernel      numbersByWord
		records     wire.Records
		isolated    bool
	}{
		{name: "plain", input: many(a, b)},
		{name: "two columns", input: many(a, b), kernel: numbersByWord{both: true}},
		{name: "a text column", input: many(a, b, `{"s":1}`, `{"v":1,"s":2}`), kernel: numbersByWord{text: true}},
		{name: "the column in the record", input: many(a, `{"v":[7,8],"id":3}`, `{"\u0076":9}`, b)},
		{name: "no object", input: many(a, `[1]`, b)},
		{name: "blank lines and returns", input: many(a, "", b+"\r", a)},
		{name: "no newline at the end", input: many(a) + b},
		{name: "other verdicts", input: many(a, b, `{"x":"drop"}`, b, `{"x":"fail"}`, `{no JSON`, b, `{"x":"line"}`, a)},
		{name: "errors apart", input: many(a, `{"x":"fail"}`, b), records: wire.Records{ErrorsApart: true}},
		{name: "keep", input: many(a, b), records: wire.Records{Keep: []string{"id"}}},
		{name: "NaN fails", input: many(a, b), records: wire.Records{NaNFails: true}},
		{name: "isolated", input: many(a, b, `{"x":"fail"}`, b), isolated: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			records := test.records
			records.BatchBytes, records.BatchSize, records.MaxBytes = 1<<20, 64, 1<<20
			records.Columns = &columns.Spec{Arrays: []columns.ArraySpec{{Name: "v"}}}
			layout := columns.Layout{Columns: []columns.Column{{Name: "v", Kind: columns.Float32, Width: 2}}}
			if test.kernel.both {
				layout.Columns = append(layout.Columns, columns.Column{Name: "n", Kind: columns.Int64})
			}
			assigned := assign(t, test.input)
			got, files := writeStored(t, assigned, records, layout, test.kernel, test.isolated, true)
			want, wantFiles := writeStored(t, assigned, records, layout, test.kernel, test.isolated, false)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if files != wantFiles {
				t.Errorf("%q\ninstead of\n%q", files, wantFiles)
			}
		})
	}
}

// writeStored computes a chunk and returns the segment with the bytes of its files. Without
// stores, each record is written separately, and without what the reader has found.
func writeStored(t *testing.T, assigned wire.Assign, records wire.Records, layout columns.Layout, kernel plugins.Kernel, isolated, stores bool) (chunk.Segment, string) {
	t.Helper()
	silent := struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(nil), io.Discard}
	w := &Worker{conn: wire.NewConn(silent), setup: wire.Setup{Records: records, Layout: &layout}, host: &kernelHost{}}
	w.sizes.records.want = int64(records.BatchSize)
	w.layouts = newLayouts(w.setup, nil)
	compute := func(batch [][]byte) *plugins.Results {
		results, err := plugins.Call(t.Context(), kernel, plugins.NewBatch(batch))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	if stores { // as after the first batch
		noted := []string{}
		for _, c := range layout.Columns {
			noted = append(noted, c.Name)
		}
		if kernel.(numbersByWord).text {
			noted = append(noted, "s")
		}
		w.columns.note(noted)
	}
	reader, err := w.startReading(t.Context(), assigned)
	if err != nil {
		t.Fatal(err)
	}
	out := w.startWriting(assigned, reader.recycle)
	out.copies = out.copies && stores
	for batch := range reader.batches {
		if batch.err != nil {
			t.Fatal(batch.err)
		}
		task := batch.group.task
		if !stores {
			task.places = places{}
		}
		for i := range task.records {
			if isolated {
				task.verdicts = append(task.verdicts, verdict{results: compute(task.records[i : i+1])})
			}
		}
		task.results = compute(task.records)
		out.tasks <- task
	}
	segment, err := out.finish(chunk.Chunk{}, false)
	reader.stop()
	if err != nil {
		t.Fatal(err)
	}
	var files strings.Builder
	for _, suffix := range []string{".out", ".err", ".failures", ".rows", ".cols"} {
		data, _ := os.ReadFile(assigned.Part + suffix)
		_ = os.Remove(assigned.Part + suffix)
		fmt.Fprintf(&files, "%s: %s", suffix, data)
	}
	return segment, files.String()
}
