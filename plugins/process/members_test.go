package process

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// withInputs finds the members as a worker does.
func withInputs(t *testing.T, batch plugins.Batch, names ...string) plugins.Batch {
	t.Helper()
	var spans []uint32
	wanted := jsonline.Want(names...)
	for i := range batch.Len() {
		var info jsonline.Info
		if err := wanted.Scan(batch.Record(i), &info); err != nil {
			t.Fatal(err)
		}
		for _, span := range info.Spans {
			spans = append(spans, uint32(span.ValueStart), uint32(span.ValueEnd-span.ValueStart))
		}
	}
	return batch.WithInputs(names, spans)
}

// reading answers with what it knows about its inputs.
type reading struct {
	plugins.Base
	inputs []string
	known  chan bool // whether the worker located the members of a batch
}

func (k reading) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Inputs: k.inputs}, nil
}

func (k reading) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	names, _ := batch.At(0).Located()
	k.known <- names != nil
	for i := range batch.Len() {
		text, err := batch.Text(nil, i, "text")
		if err != nil {
			results.Fail(i, err.Error())
			continue
		}
		results.Line(i, text)
	}
	return nil
}

func TestMembersOverTheWire(t *testing.T) {
	list := [][]byte{[]byte(`{ "id" : 1 , "text" : "spaced" }`), []byte(`{"text":"\u00e9"}`), []byte(`{"text":1.50}`), []byte(`{}`), []byte(`["text"]`)}
	want := []string{"spaced", "é", `member "text" is not a string`, `the record has no member "text"`, `the record has no member "text"`}
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		k := reading{inputs: []string{"id", "text"}, known: make(chan bool, 1)}
		proxy := connect(t, k)
		for how, batch := range map[string]plugins.Batch{
			"found": withInputs(t, plugins.NewBatch(list), "id", "text"), "others found": withInputs(t, plugins.NewBatch(list), "text"), "bare": plugins.NewBatch(list),
		} {
			results, err := plugins.Call(t.Context(), proxy, batch)
			if err != nil {
				t.Fatal(err)
			}
			if known := <-k.known; known != (how == "found") {
				t.Errorf("%s: the members are known: %v", how, known)
			}
			for i := range list {
				if got := results.At(i); got.Message+string(slices.Concat(got.Lines...)) != want[i] {
					t.Errorf("%s in %s: %+v", how, list[i], got)
				}
			}
		}
	})
}

// A request with spans outside of its record ends the stream with the reason.
func TestHostileSpansOverTheWire(t *testing.T) {
	planes(t, func(t *testing.T, connect func(*testing.T, plugins.Kernel) *client) {
		proxy := connect(t, reading{inputs: []string{"text"}, known: make(chan bool, 1)})
		results, held := plugins.NewResults(1), new(protocol.Carrier)
		request := &kernelpb.ProcessRequest{Records: protocol.Pack(held, [][]byte{[]byte(`{}`)}), Spans: []uint32{1, 100}}
		if err := proxy.batches.submit(request, awaited{results: results, finish: results.Defer(), carrier: held}); err != nil {
			t.Fatal(err)
		}
		err := results.Wait(t.Context())
		if fault.KindOf(err) != fault.Crash || !strings.Contains(err.Error(), "an input ends past its record") {
			t.Errorf("error: %v", err)
		}
	})
}

// Too many inputs are rejected when the job is planned.
func TestTooManyInputs(t *testing.T) {
	for n, want := range map[int]fault.Kind{maxInputs: fault.Unknown, maxInputs + 1: fault.Incompatible, 1000: fault.Incompatible} {
		proxy, end := Loopback(reading{inputs: make([]string, n)})
		_, err := proxy.Describe(t.Context(), nil)
		if fault.KindOf(err) != want || (err == nil) != (want == fault.Unknown) {
			t.Errorf("%d inputs: %v", n, err)
		}
		end()
	}
}
