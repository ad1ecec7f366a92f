package worker

import (
	"context"
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// mixed returns wide columns, and among them every other verdict.
type mixed struct{ plugins.Base }

const mixedWidth = 300

func (mixed) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	values := make([]float32, batch.Len()*mixedWidth)
	for i := range values {
		values[i] = float32(i) / 7
	}
	results.Column(plugins.Float32s("v", mixedWidth, values))
	for i := range batch.Len() {
		switch i % 11 {
		case 3:
			results.Drop(i)
		case 4:
			results.Fail(i, "no")
		case 5:
			results.Unchanged(i)
		case 6:
			results.Lines(i, []byte(`{"x":1}`), []byte(`{"x":2}`))
		case 7:
			results.Line(i, []byte(`{"x":`))
		}
	}
	return nil
}

// Several goroutines give what one gives, for every way in which a batch divides.
func TestEncodersAgree(t *testing.T) {
	for _, n := range []int{110, 111, 119, 120, 128, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			task := &batchTask{batch: &input.Batch{Records: make([]input.Record, n)}}
			for i := range n {
				record := fmt.Sprintf(`{"id":%d}`, i)
				if i%13 == 0 {
					record = `["no object"]`
				}
				task.records = append(task.records, []byte(record))
				task.sent = append(task.sent, i)
			}
			task.results = plugins.Submit(t.Context(), mixed{}, plugins.NewBatch(task.records))
			if err := task.results.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			several, one := newEncoders(newLayouts(wire.Setup{}, nil), chunk.Chunk{}, 4), newEncoders(newLayouts(wire.Setup{}, nil), chunk.Chunk{}, 1)
			several.begin(task)
			one.begin(task)
			if len(several.ready) == 0 || len(one.ready) > 0 {
				t.Fatalf("%d and %d goroutines", len(several.ready), len(one.ready))
			}
			for i, record := range task.records {
				if v := task.results.At(i).Verdict; v == plugins.Dropped || v == plugins.Failed {
					continue
				}
				got, _, gotRefusal := several.encode(input.Record{Data: record}, i, task.verdict(i))
				want, _, wantRefusal := one.encode(input.Record{Data: record}, i, task.verdict(i))
				if string(got) != string(want) || (gotRefusal == nil) != (wantRefusal == nil) {
					t.Fatalf("record %d: %q (%v) instead of %q (%v)", i, got, gotRefusal, want, wantRefusal)
				}
			}
		})
	}
}
