package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// byWord gives each record the verdict that it asks for, or Unchanged.
type byWord struct{ plugins.Base }

func (byWord) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		switch record := batch.Record(i); {
		case bytes.Contains(record, []byte("drop")):
			results.Drop(i)
		case bytes.Contains(record, []byte("fail")):
			results.Fail(i, "no")
		case bytes.Contains(record, []byte("line")):
			results.Line(i, []byte(`{"new":1}`))
		default:
			results.Unchanged(i)
		}
	}
	return nil
}

// What the kernel leaves unchanged is written as it lies in memory, where it can be:
// that must give the part that record by record gives.
func TestWriteUnchanged(t *testing.T) {
	many := func(lines ...string) string {
		return strings.Repeat(strings.Join(lines, ""), 300)
	}
	const a, b = `{"id":1,"text":"` + "0123456789abcdef" + `"}`, `{"id": 2}`
	tests := []struct {
		name, input string
		records     wire.Records
		isolated    bool // the batch was isolated: each record has its own verdict
	}{
		{name: "plain", input: many(a+"\n", b+"\n")},
		{name: "one batch", input: strings.Repeat(a+"\n", 3000), records: wire.Records{BatchSize: 3000}},
		{name: "carriage returns", input: many(a+"\r\n", b+"\r\n")},
		{name: "some carriage returns", input: many(a+"\n", b+"\r\n", a+"\n")},
		{name: "blank lines", input: "\n\n" + many(a+"\n", "\n", b+"\n", " \t\r\n", b+"\n")},
		{name: "a byte order mark", input: "\xef\xbb\xbf" + many(a+"\n")},
		{name: "no newline at the end", input: many(a+"\n") + b},
		{name: "a carriage return at the end", input: many(a+"\n") + b + "\r"},
		{name: "one record", input: a},
		{name: "refused", input: many(a+"\n", b+"\n", "{no JSON\n", b+"\n")},
		{name: "marked before", input: many(a+"\n", `{"_error":{}}`+"\n", b+"\n")},
		{name: "too long", input: many(a+"\n", b+"\n", `"`+strings.Repeat("x", 200)+`"`+"\n", b+"\n"), records: wire.Records{MaxBytes: 100}},
		{name: "dropped", input: many(a+"\n", b+"\n", `"drop"`+"\n", b+"\n")},
		{name: "failed", input: many(a+"\n", b+"\n", `"fail"`+"\n", b+"\n")},
		{name: "failed, apart", input: many(a+"\n", b+"\n", `"fail"`+"\n", b+"\n"), records: wire.Records{ErrorsApart: true}},
		{name: "other lines", input: many(a+"\n", b+"\n", `"line"`+"\n", b+"\n")},
		{name: "isolated", input: many(a+"\n", b+"\n", `"fail"`+"\n", "no\n", b+"\n"), isolated: true},
		{name: "keep", input: many(a+"\n", b+"\n"), records: wire.Records{Keep: []string{"text"}}},
		{name: "framed", input: many(a+"\n", b+"\n", `"fail"`+"\n", b+"\n"), records: wire.Records{Store: chunk.StoreFrames}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			records := test.records
			records.BatchBytes = 1 << 20
			if records.BatchSize == 0 {
				records.BatchSize = 100
			}
			if records.MaxBytes == 0 {
				records.MaxBytes = 1 << 20
			}
			assigned := assign(t, test.input)
			got, files := writePart(t, assigned, records, test.isolated, true)
			want, wantFiles := writePart(t, assigned, records, test.isolated, false)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v\ninstead of\n%+v", got, want)
			}
			if files != wantFiles {
				t.Errorf("%q\ninstead of\n%q", files, wantFiles)
			}
		})
	}
}

// writePart computes a chunk with byWord and returns the segment with the bytes of its
// files. Without verbatim, each record is written separately.
func writePart(t *testing.T, assigned wire.Assign, records wire.Records, isolated, verbatim bool) (chunk.Segment, string) {
	t.Helper()
	silent := struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(nil), io.Discard}
	w := &Worker{conn: wire.NewConn(silent), setup: wire.Setup{Records: records}, host: &kernelHost{}}
	w.layouts = newLayouts(w.setup, nil)
	w.sizes.records.want = int64(records.BatchSize)
	reader, err := w.startReading(t.Context(), assigned)
	if err != nil {
		t.Fatal(err)
	}
	out := w.startWriting(assigned, reader.recycle)
	out.copies = out.copies && verbatim
	for batch := range reader.batches {
		if batch.err != nil {
			t.Fatal(batch.err)
		}
		task := batch.group.task
		if isolated {
			for i := range task.records {
				results := submit(t, task.records[i:i+1])
				task.verdicts = append(task.verdicts, verdict{results: results})
			}
		}
		task.results = submit(t, task.records)
		out.tasks <- task
	}
	segment, err := out.finish(chunk.Chunk{}, false)
	reader.stop()
	if err != nil {
		t.Fatal(err)
	}
	var files strings.Builder
	for _, suffix := range []string{".out", ".err", ".failures"} {
		data, _ := os.ReadFile(assigned.Part + suffix)
		_ = os.Remove(assigned.Part + suffix)
		fmt.Fprintf(&files, "%s: %s", suffix, data)
	}
	return segment, files.String()
}

func submit(t *testing.T, records [][]byte) *plugins.Results {
	t.Helper()
	results := plugins.Submit(t.Context(), byWord{}, plugins.NewBatch(records))
	if err := results.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return results
}
