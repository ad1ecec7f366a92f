package worker

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// once is a kernel with one verdict for one record.
type once struct {
	plugins.Base
	give func(*plugins.Results)
}

func (o once) Process(_ context.Context, _ plugins.Batch, results *plugins.Results) error {
	o.give(results)
	return nil
}

func TestEncode(t *testing.T) {
	line := func(text string) func(*plugins.Results) {
		return func(r *plugins.Results) { r.Line(0, []byte(text)) }
	}
	same := func(r *plugins.Results) { r.Unchanged(0) }
	column := func(name, value string) func(*plugins.Results) {
		return func(r *plugins.Results) { r.Column(plugins.JSON(name, [][]byte{[]byte(value)})) }
	}
	tests := []struct {
		name, record string
		keep         []string
		give         func(*plugins.Results)
		want         string // "!text" for a refusal with that text
	}{
		{"unchanged", `{"a": 1}`, nil, same, `{"a": 1}`},
		{"a line", `{"a":1}`, nil, line(`{"b":2}`), `{"b":2}`},
		{"the same line", ` {"a":1}`, nil, line(` {"a":1}`), ` {"a":1}`},
		{"an invalid line", `{}`, nil, line(`{"b":}`), `!invalid JSON`},
		{"an empty line", `{}`, nil, line(``), `!invalid JSON`},
		{"a line with a break", `{}`, nil, line("{\"b\":\n1}"), `!line break`},
		{"a new column", `{"a":1}`, nil, column("b", `[2]`), `{"a":1,"b":[2]}`},
		{"a column that is there", `{"b":1,"a":1}`, nil, column("b", `2`), `{"b":2,"a":1}`},
		{"a column with an escape", `{"\u0062":1}`, nil, column("b", `2`), `{"\u0062":2}`},
		{"an invalid column", `{"a":1}`, nil, column("b", `[2`), `!column "b"`},
		{"a column with a break", `{"a":1}`, nil, column("b", "[2,\n3]"), `!column "b"`},
		{"a column for an array", `[1]`, nil, column("b", `2`), `!not a JSON object`},
		{"keep", `{"a":1,"b":2,"c":3}`, []string{"c", "a"}, same, `{"a":1,"c":3}`},
		{"keep nothing that is there", `{"a":1}`, []string{"x"}, same, `{}`},
		{"keep of an array", `[1]`, []string{"x"}, same, `[1]`},
		{"keep, and a column", `{"a":1,"b":2}`, []string{"a"}, column("d", `4`), `{"a":1,"d":4}`},
		{"keep, and a whole record", `{"a":1,"b":2,"c":3}`, []string{"a"}, line(`{"a":1,"b":9,"c":3,"d":4}`), `{"a":1,"b":9,"d":4}`},
		{"keep, and a line instead of the record", `{"a":1,"b":2,"c":3}`, []string{"c", "a", "x"}, line(`{"d": 4, "b":2}`), `{"a":1,"c":3,"d":4}`},
		{"keep, and a line that changes it", `{"a":1,"b":2,"c":3}`, []string{"a", "c"}, line(`{"d":4,"a":9}`), `{"c":3,"d":4,"a":9}`},
		{"keep, and an empty line", `{"\u0061":1,"a":2}`, []string{"a"}, line(`{}`), `{"\u0061":1}`},
		{"keep, and a line that is no object", `{"a":1}`, []string{"a"}, line(`[4]`), `[4]`},
		{"keep of a string, and a line", `"x"`, []string{"a"}, line(`{"d":4}`), `{"d":4}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			results, err := plugins.Call(context.Background(), once{give: test.give}, plugins.NewBatch([][]byte{[]byte(test.record)}))
			if err != nil {
				t.Fatal(err)
			}
			got, refusal := newEncoder(wire.Records{Keep: test.keep}, linesOnly, chunk.Chunk{}).encode(source{record: []byte(test.record)}, results, 0)
			if want, refused := strings.CutPrefix(test.want, "!"); refused {
				if refusal == nil || refusal.Kind != fault.Record || !strings.Contains(refusal.Message, want) {
					t.Errorf("got %s, refusal %v, want one with %q", got, refusal, want)
				}
				return
			}
			if refusal != nil || string(got) != test.want+"\n" {
				t.Errorf("got %s, refusal %v, want %s", got, refusal, test.want)
			}
		})
	}
}

// Numbers that JSON does not have are counted, or fail their record.
func TestEncodeNonFinite(t *testing.T) {
	nan := float32(math.NaN())
	give := func(r *plugins.Results) {
		r.Column(plugins.Float32s("x", 2, []float32{1, nan, float32(math.Inf(-1)), nan, 5, 6}))
		r.Column(plugins.Float64s("y", 0, []float64{math.Inf(1), 2, 3}))
	}
	record := []byte(`{}`)
	results, err := plugins.Call(context.Background(), once{give: give}, plugins.NewBatch([][]byte{record, record, record}))
	if err != nil {
		t.Fatal(err)
	}
	lenient, strict := newEncoder(wire.Records{}, linesOnly, chunk.Chunk{}), newEncoder(wire.Records{NaNFails: true}, linesOnly, chunk.Chunk{})
	for i, want := range []string{`{"x":[1.0,null],"y":null}`, `{"x":[null,null],"y":2.0}`, `{"x":[5.0,6.0],"y":3.0}`} {
		got, refusal := lenient.encode(source{record: record}, results, i)
		if refusal != nil || string(got) != want+"\n" {
			t.Errorf("record %d: %s, %v", i, got, refusal)
		}
		_, refusal = strict.encode(source{record: record}, results, i)
		if finite := i == 2; (refusal == nil) != finite {
			t.Errorf("record %d: %v", i, refusal)
		}
	}
	if lenient.nulls != 4 {
		t.Errorf("%d were counted", lenient.nulls)
	}
}

// A line without the columns of a layout is not scanned for them. In doubt, it is.
func TestCompleteRows(t *testing.T) {
	var r rowEncoder
	r.use(&columns.Layout{Columns: []columns.Column{{Name: "v", Kind: columns.Int64, Width: 1}}})
	for line, want := range map[string]bool{
		`{"id":1}`: true, `{"w":"v"}`: false, `{"v":1}`: false, `{"a":{"v":1}}`: false, `{"\u0076":1}`: false, `["a"]`: false, ``: false,
	} {
		if r.raw[0] = null; r.complete([]byte(line)) != want {
			t.Errorf("%s", line)
		}
		if r.raw[0] = nil; r.complete([]byte(line)) {
			t.Errorf("%s: its value is missing", line)
		}
	}
}
