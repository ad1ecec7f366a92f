package plugins

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestColumnValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	tests := []struct {
		name   string
		column Column
		want   []string
	}{
		{"float32 shortest", Float32s("c", 0, []float32{0.1, 1.0 / 3, 16777216, 1e-9, -0.5}), []string{"0.1", "0.33333334", "16777216.0", "1e-9", "-0.5"}},
		{"float32 odd", Float32s("c", 0, []float32{float32(nan), float32(inf), float32(-inf), 0}), []string{"null", "null", "null", "0.0"}},
		{"float32 arrays", Float32s("c", 2, []float32{0.1, 2, 3, float32(nan)}), []string{"[0.1,2.0]", "[3.0,null]"}},
		{"float64", Float64s("c", 0, []float64{0.1, 1.0 / 3, nan, 1e300}), []string{"0.1", "0.3333333333333333", "null", "1e+300"}},
		{"float64 arrays", Float64s("c", 1, []float64{0.1, -inf}), []string{"[0.1]", "[null]"}},
		{"int64", Int64s("c", 0, []int64{0, math.MinInt64, math.MaxInt64}), []string{"0", "-9223372036854775808", "9223372036854775807"}},
		{"int64 arrays", Int64s("c", 3, []int64{1, 2, 3, 4, 5, 6}), []string{"[1,2,3]", "[4,5,6]"}},
		{"bool", Bools("c", []bool{true, false}), []string{"true", "false"}},
		{"strings", Strings("c", []string{"", `a"b\c`, "line\nbreak\ttab\x00", "Grüße 👍", "bad \xff byte", "\u2028"}),
			[]string{`""`, `"a\"b\\c"`, `"line\nbreak\ttab\u0000"`, `"Grüße 👍"`, "\"bad \ufffd byte\"", "\"\u2028\""}},
		{"json", JSON("c", [][]byte{[]byte(`{"a":1}`), []byte(`[]`)}), []string{`{"a":1}`, `[]`}},
		{"bytes", Bytes("c", [][]byte{{0xff, 0}, nil, {}}), []string{`"/wA="`, `null`, `""`}},
		{"bool arrays", boolArrays("c", 2, []bool{true, false, false, true}), []string{"[true,false]", "[false,true]"}},
		{"string arrays", Column{Name: "c", Width: 2, values: Strings("c", []string{"a", "b", "c", "d"}).values}, []string{`["a","b"]`, `["c","d"]`}},
		{"two dimensions", Float32s("c", 4, []float32{1, 2, 3, 4, 5, float32(nan), 7, 8}).Shaped(2, 2), []string{"[[1.0,2.0],[3.0,4.0]]", "[[5.0,null],[7.0,8.0]]"}},
		{"three dimensions", Int64s("c", 6, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).Shaped(1, 3, 2), []string{"[[[1,2],[3,4],[5,6]]]", "[[[7,8],[9,10],[11,12]]]"}},
		{"one dimension", Int64s("c", 2, []int64{1, 2}).Shaped(2), []string{"[1,2]"}},
		{"nothing", Column{Name: "c"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.column.Rows(); got != len(test.want) {
				t.Fatalf("%d rows", got)
			}
			for i, want := range test.want {
				got := string(test.column.AppendValue([]byte("> "), i))
				if got != "> "+want && !sameEscapes(got[2:], want) {
					t.Errorf("value %d is %s, not %s", i, got, want)
				}
				if !json.Valid([]byte(got[2:])) {
					t.Errorf("value %d is not JSON: %s", i, got)
				}
			}
		})
	}
}

// A reader that infers types from the text finds the same type in every record.
func TestFloatColumnsStayFloats(t *testing.T) {
	for _, f := range []float64{0, 1, -1, math.Copysign(0, -1), 65504, 1 << 24, 1 << 53, 1e20, 1e21, 1e-7, 0.5, math.MaxFloat32} {
		for _, column := range []Column{
			Float32s("c", 0, []float32{float32(f)}), Float32s("c", 2, []float32{float32(f), float32(f)}),
			Float64s("c", 0, []float64{f}), Float64s("c", 2, []float64{f, f}),
		} {
			for number := range strings.SplitSeq(strings.Trim(string(column.AppendValue(nil, 0)), "[]"), ",") {
				back, err := strconv.ParseFloat(number, 64)
				if !strings.ContainsAny(number, ".e") || err != nil || float32(back) != float32(f) {
					t.Errorf("%v is written %s", f, number)
				}
			}
		}
	}
}

// sameEscapes: a control character may be escaped in more than one way.
func sameEscapes(a, b string) bool {
	var left, right any
	return strings.HasPrefix(b, `"`) && json.Unmarshal([]byte(a), &left) == nil && json.Unmarshal([]byte(b), &right) == nil && left == right
}

func TestTrusted(t *testing.T) {
	for _, c := range []Column{Float32s("c", 0, nil), Strings("c", nil), Bools("c", nil)} {
		if !c.Trusted() {
			t.Errorf("%T is not trusted", c.values)
		}
	}
	if JSON("c", nil).Trusted() {
		t.Error("encoded values are trusted")
	}
}

func BenchmarkAppendFloat32s(b *testing.B) {
	values := make([]float32, 384)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	c := Float32s("v", 384, values)
	var dst []byte
	for b.Loop() {
		dst = c.AppendValue(dst[:0], 0)
	}
	b.SetBytes(int64(len(dst)))
}
