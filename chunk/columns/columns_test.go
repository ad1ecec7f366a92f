package columns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/parquet"
)

func raw(values ...any) (b []byte) {
	for _, v := range values {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

func TestAppendJSON(t *testing.T) {
	nan32, nan64 := float32(math.NaN()), math.NaN()
	for _, test := range []struct {
		column Column
		value  string
		want   []byte
		err    string
	}{
		{Column{Kind: Float32}, "0.1", raw(float32(0.1)), ""},
		{Column{Kind: Float32}, "16777217.0000001", raw(float32(16777218)), ""}, // rounded once
		{Column{Kind: Float64}, "-1e-3", raw(-1e-3), ""},
		{Column{Kind: Float64}, "null", raw(nan64), ""},
		{Column{Kind: Float32, Width: 3}, "[1, null ,2.5]", raw(float32(1), nan32, float32(2.5)), ""},
		{Column{Kind: Float32, Width: 1}, "[ 7 ]", raw(float32(7)), ""},
		{Column{Kind: Int64, Width: 2}, "[-9223372036854775808,1]", raw(int64(math.MinInt64), int64(1)), ""},
		{Column{Kind: Bool, Width: 2}, "[true,false]", []byte{1, 0}, ""},
		{Column{Kind: Float16}, "1", []byte{0, 0x3c}, ""},
		{Column{Kind: Float32, Width: 3}, "[1,2]", nil, "a list of 2 values instead of 3"},
		{Column{Kind: Float32, Width: 2}, "[]", nil, "a list of 0 values instead of 2"},
		{Column{Kind: Float32, Width: 2}, "1", nil, "1 is not a list of 2 values"},
		{Column{Kind: Float32}, "[1]", nil, "[1] is not a value of type float32"},
		{Column{Kind: Float32, Width: 2}, "[[1],2]", nil, "not a value of type float32"},
		{Column{Kind: Float32}, `"` + strings.Repeat("x", 99) + `"`, nil, "…"},
		{Column{Kind: Int64}, "1.5", nil, "1.5 is not a value of type int64"},
		{Column{Kind: Int64}, "null", nil, "null is not a value of type int64"},
		{Column{Kind: Bool}, "1", nil, "1 is not a value of type bool"},
		{Column{Kind: Float64}, "true", nil, "true is not a value of type float64"},
		{Column{Kind: Float64}, "1e999", nil, "1e999 is not a value of type float64"},
	} {
		got, err := test.column.AppendJSON([]byte("x"), []byte(test.value))
		switch {
		case test.err == "" && (err != nil || !bytes.Equal(got, append([]byte("x"), test.want...))):
			t.Errorf("%s as %s: %x, %v; want %x", test.value, test.column.Shape(), got, err, test.want)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || string(got) != "x"):
			t.Errorf("%s as %s: %x, %v", test.value, test.column.Shape(), got, err)
		}
	}
}

// TestInfer: a value fits in the column that is inferred from it.
func TestInfer(t *testing.T) {
	for value, want := range map[string]string{
		"1": "int64", "1.0": "float64", "-2e3": "float64", "true": "bool", "[1,2]": "int64[2]", "[1, 2.5]": "float64[2]", "[1.5,null]": "float64[2]",
		"[true,false]": "bool[2]", "9223372036854775808": "float64",
		`"a"`: "", "null": "", "[]": "", `["a"]`: "", "{}": "", "[[1],[2]]": "int64[2,1]", "[ [1,2] , [3,4.5],[5,null]]": "float64[3,2]", "[[[1],[2]],[[3],[4]]]": "int64[2,2,1]",
		"[[1],[2,3]]": "", "[[1],2]": "", "[[true],[1]]": "", "[[[1]],[2]]": "", `[["],[",1],2]`: "", "[[],[]]": "", "[true,1]": "", "[null]": "",
	} {
		c, err := Infer("x", []byte(value))
		if got := c.Shape(); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%s: %s, %v; want %s", value, got, err, want)
		}
		if err != nil {
			continue
		}
		if _, err := c.AppendJSON(nil, []byte(value)); err != nil {
			t.Errorf("%s does not fit in %s: %v", value, c.Shape(), err)
		}
	}
}

// TestIndex: entries are read back, and no damage makes a reader fail in another way.
func TestIndex(t *testing.T) {
	var index []byte
	for i := range 300 {
		index = AppendEntry(index, int64(i*i*i+1), i%3 == 0)
	}
	rest := index
	for i := range 300 {
		length, values, after, err := NextEntry(rest)
		if err != nil || length != int64(i*i*i+1) || values != (i%3 == 0) {
			t.Fatalf("entry %d: %d %v %v", i, length, values, err)
		}
		rest = after
	}
	for _, damaged := range [][]byte{nil, {0}, {1}, {0x80}, bytes.Repeat([]byte{0xff}, 12)} {
		if _, _, _, err := NextEntry(damaged); err == nil {
			t.Errorf("%x is an entry", damaged)
		}
	}
}

// TestTableLayout: types come from the user, else from the kernel, else from the records.
func TestTableLayout(t *testing.T) {
	sample := func(lines ...string) (s parquet.Sample) {
		for _, line := range lines {
			s.Add([]byte(line))
		}
		return s
	}
	kernel := []Column{{Name: "v", Kind: Float32, Width: 3}, {Name: "n", Kind: Int64}}
	for _, test := range []struct {
		name    string
		columns []parquet.Column
		input   []string
		lines   []string
		kernel  []Column
		want    string
	}{
		{"all", nil, []string{`{"id":1,"t":null}`, `{"id":2.5}`}, []string{`{"id":1,"t":"x","l":"a"}`}, kernel, "id:float64 t:string l:string v:float32[3]* n:int64* closed"},
		{"other records", nil, []string{`{"id":1,"t":"x"}`}, []string{`{"answer":1}`}, nil, "answer:int64 closed"},
		{"chosen", []parquet.Column{{Name: "n"}, {Name: "id", Type: parquet.String}, {Name: "v", Type: parquet.Float64.List()}}, []string{`{"id":1}`}, []string{`{"id":1,"v":[1]}`}, kernel, "n:int64* id:string v:float64[]"},
		{"as the kernel has it", []parquet.Column{{Name: "v", Type: parquet.Float32.List(), Length: 3}}, nil, []string{`{}`}, kernel, "v:float32[3]*"},
		{"lists of any length", []parquet.Column{{Name: "v", Type: parquet.Float32.List()}}, nil, []string{`{"v":[1,2,3]}`}, kernel, "v:float32[]"},
		{"only in the input", []parquet.Column{{Name: "t"}}, []string{`{"t":[]}`}, []string{`{}`}, kernel, "t:json"},
		{"nowhere", []parquet.Column{{Name: "x"}}, []string{`{"t":1}`}, []string{`{"t":1}`}, kernel, `error: the results have no column "x"; their columns are t`},
		{"misspelled", []parquet.Column{{Name: "vec"}}, nil, []string{`{"text":1,"vce":2}`}, nil, `error: the results have no column "vec"; did you mean "vce"?`},
		{"misspelled, of the input", []parquet.Column{{Name: "dayy"}}, []string{`{"day":1}`}, []string{`{}`}, nil, `error: the results have no column "dayy"; did you mean "day"?`},
		{"declared by the input", nil, []string{`{"d":null,"i":1,"s":"x","f":1}`}, []string{`{"d":null,"i":1,"s":"x","f":"y","own":null}`}, nil, "d:float64 i:float32 s:string f:string own:json closed"},
	} {
		spec := &TableSpec{Columns: test.columns, Sample: sample(test.input...)}
		if test.name == "declared by the input" {
			spec.Input = []parquet.Column{{Name: "d", Type: parquet.Float64}, {Name: "i", Type: parquet.Float32}, {Name: "f", Type: parquet.Float32}}
		}
		typed := spec.Typed(test.kernel)
		layout, err := spec.Layout(typed, sample(test.lines...), map[string]bool{"f": true, "own": true}, nil)
		var got []string
		if err != nil {
			got = []string{"error: " + err.Error()}
		} else {
			number := 0
			for _, c := range layout.Table.Columns {
				text := c.Name + ":" + string(c.Type)
				if c.Width > 0 {
					text += fmt.Sprintf("[%d]", c.Width)
				}
				if c.Typed {
					text += "*"
					if layout.Columns[number].Name != c.Name {
						t.Errorf("%s: values in another order: %v", test.name, layout.Columns)
					}
					number++
				}
				got = append(got, text)
			}
			if layout.Table.Closed {
				got = append(got, "closed")
			}
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestShapes(t *testing.T) {
	for _, c := range []Column{
		{Kind: "uint4"}, {Kind: Float32, Width: -1}, {Kind: Float32, Width: 4, Dimensions: []int{4}}, {Kind: Float32, Width: 4, Dimensions: []int{2, 3}},
		{Kind: Float32, Dimensions: []int{2, 0}}, {Kind: Float32, Width: 1, Dimensions: slices.Repeat([]int{1}, 32)},
	} {
		c.Name = "v"
		if (&Layout{Columns: []Column{c}}).Validate() == nil {
			t.Errorf("%v: no error", c)
		}
	}
	l := Layout{Columns: []Column{{Name: "v", Kind: Float64, Width: 24, Dimensions: []int{2, 3, 4}}, {Name: "w", Kind: Bool}}}
	if err := l.Validate(); err != nil || l.RowBytes() != 193 {
		t.Error(l.RowBytes(), err)
	}
}
