package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// two returns two columns for every record.
type two struct{ plugins.Base }

func (two) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	numbers, texts := make([]int64, batch.Len()), make([]string, batch.Len())
	for i := range numbers {
		numbers[i], texts[i] = int64(i), strings.Repeat("x", i)
	}
	results.Column(plugins.Int64s("n", 0, numbers))
	results.Column(plugins.Strings("text", texts))
	return nil
}

// What the check of a line has found of the columns gives the same lines as looking
// for them again.
func TestPlacesAgree(t *testing.T) {
	lines := []string{
		`{"text":"a"}`, `not JSON`, `{}`, ` { } `, `{"n":1,"text":2}`, `[1]`, `{"text":1,"text":2}`, `{"\u0074ext":1,"a":{"n":1}}`,
		`{"_error":1}`, `{"a":"}"}`, `"n"`, `{"n" : [1, 2] , "z":0}`,
	}
	batch := &input.Batch{}
	for _, line := range lines {
		batch.Records = append(batch.Records, input.Record{Data: []byte(line)})
	}
	reader := &batchReader{inputs: []string{"a"}, seen: &columnNames{}}
	first := mustPrepare(t, reader, batch)
	if len(first.places.infos) > 0 {
		t.Fatal("columns were looked for before they were known")
	}
	first.results = plugins.Submit(t.Context(), two{}, plugins.NewBatch(first.records))
	if err := first.results.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := encodedLines(first, reader.seen)

	second := mustPrepare(t, reader, batch)
	if len(second.places.infos) != len(second.sent) {
		t.Fatalf("places of %d records, and %d are sent", len(second.places.infos), len(second.sent))
	}
	second.results = first.results
	if got := encodedLines(second, reader.seen); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q instead of %q", got, want)
	}
	if want[0] != "{\"text\":\"\",\"n\":0}\n" || !strings.HasPrefix(want[4], "refused") {
		t.Errorf("%q", want)
	}
}

func encodedLines(task *batchTask, seen *columnNames) (lines []string) {
	e := newEncoders(newLayouts(wire.Setup{}, nil), chunk.Chunk{}, 1, seen)
	e.begin(task)
	for i, record := range task.records {
		line, _, refusal := e.encode(input.Record{Data: record}, i, task.verdict(i))
		if refusal != nil {
			line = []byte("refused: " + refusal.Message)
		}
		lines = append(lines, string(line))
	}
	return lines
}

func mustPrepare(t *testing.T, b *batchReader, batch *input.Batch) *batchTask {
	t.Helper()
	task, err := b.prepare(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return task
}
