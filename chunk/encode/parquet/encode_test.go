package parquet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/input/format"
	input "github.com/gpurun/gpurun/chunk/input/parquet"
)

// sample is a table with all types, in row groups.
type sample struct {
	schema Schema
	groups []Rows
	lines  []string // what readers must find
}

func floats32(values []float32) (raw []byte) {
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

// newSample makes row groups with the given numbers of rows.
func newSample(sizes ...int) *sample {
	const width = 12
	s := &sample{schema: Schema{Columns: []Column{
		{Name: "id", Type: Int64}, {Name: "text", Type: String}, {Name: "score", Type: Float64},
		{Name: "ok", Type: Bool}, {Name: "doc", Type: JSON}, {Name: "small", Type: Float32}, {Name: "words", Type: String.List()}, {Name: "numbers", Type: Float32.List()},
		{Name: "vector", Type: Float32, Width: width, Typed: true}, {Name: "label", Type: Int64, Typed: true},
		{Name: "flag", Type: Bool, Typed: true}, {Name: "flags", Type: Bool, Width: 3, Typed: true},
		{Name: "grid", Type: Float32, Width: 12, Dimensions: []int{2, 3, 2}, Typed: true}, {Name: "nested", Type: Float64.List().List()},
		{Name: "deep", Type: String.List().List().List()},
	}}}
	random := rand.New(rand.NewPCG(1, 2))
	id := 0
	for _, size := range sizes {
		valid, labeled := make([]bool, size), make([]bool, size)
		rows := Rows{Count: size, Typed: make([][]byte, 5), Valid: [][]bool{valid, labeled, valid, valid, labeled}}
		for i := range size {
			valid[i] = id%7 != 3
			labeled[i] = valid[i] && id%13 != 5
			line := fmt.Sprintf(`{"id":%d,"text":"text é \"%d\"","score":%v,"ok":%v,"doc":{"a": [%d]},"small":0.1,"words":["a, \"b\" ]", "é"],"numbers":[ 1,NULL , 0.5]`, id-5, id, random.Float64(), id%2 == 0, id)
			if id%5 == 0 {
				line = fmt.Sprintf(`{"id":null,"text":"","score":%d,"words":[],"numbers":null,"other":1`, id)
			}
			if id%6 != 0 {
				line += fmt.Sprintf(`,"nested":%s,"deep":%s`, randomList(random, 2, 5, float), randomList(random, 3, 2, text))
			}
			expected := strings.ReplaceAll(line, "NULL", "NaN")
			line = strings.ReplaceAll(line, "NULL", "null")
			grid := make([]float32, 12)
			for k := range grid {
				grid[k] = float32(id*100 + k)
			}
			rows.Typed[4] = append(rows.Typed[4], floats32(grid)...)
			vector := make([]float32, width)
			if valid[i] {
				for k := range vector {
					vector[k] = float32(random.NormFloat64())
				}
				if id%11 == 0 {
					vector[1] = float32(math.NaN())
				}
				expected += fmt.Sprintf(`,"vector":%s,"flag":%v,"flags":[true,%v,false]`, pythonList(vector), id%3 == 0, id%2 == 0)
				if labeled[i] {
					expected += fmt.Sprintf(`,"label":%d,"grid":[[%s,%s,%s],[%s,%s,%s]]`, -id, pythonList(grid[:2]), pythonList(grid[2:4]), pythonList(grid[4:6]), pythonList(grid[6:8]), pythonList(grid[8:10]), pythonList(grid[10:]))
				}
				rows.Typed[1] = binary.LittleEndian.AppendUint64(rows.Typed[1], uint64(-id))
				rows.Typed[2] = append(rows.Typed[2], truth(id%3 == 0))
				rows.Typed[3] = append(rows.Typed[3], 1, truth(id%2 == 0), 0)
			} else {
				line += `,"_error":{"kind":"batch","message":"no"}`
				expected += `,"_error":"{\"kind\":\"batch\",\"message\":\"no\"}"`
				rows.Typed[1] = append(rows.Typed[1], make([]byte, 8)...)
				rows.Typed[2] = append(rows.Typed[2], 0)
				rows.Typed[3] = append(rows.Typed[3], 0, 0, 0)
			}
			rows.Typed[0] = append(rows.Typed[0], floats32(vector)...)
			rows.Lines = append(rows.Lines, []byte(line+"}"))
			expected = strings.Replace(expected, `{"a": [`+fmt.Sprint(id)+`]}`, `"{\"a\": [`+fmt.Sprint(id)+`]}"`, 1)
			expected = strings.Replace(expected, `,"other":1`, "", 1)
			s.lines = append(s.lines, expected+"}")
			id++
		}
		s.groups = append(s.groups, rows)
	}
	return s
}

// randomList returns nested lists of up to most elements, some of which are empty.
func randomList(random *rand.Rand, lists, most int, value func(*rand.Rand) string) string {
	if lists == 0 {
		return value(random)
	}
	var elements []string
	for range random.IntN(most + 1) {
		elements = append(elements, randomList(random, lists-1, most, value))
	}
	return "[" + strings.Join(elements, ", ") + "]"
}

func float(random *rand.Rand) string {
	if random.IntN(9) == 0 {
		return "NULL"
	}
	return fmt.Sprint(random.NormFloat64())
}

func text(random *rand.Rand) string { return fmt.Sprintf(`"[%d], é"`, random.IntN(99)) }

func truth(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func pythonList(values []float32) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, fmt.Sprint(v))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// file returns the encoded file.
func (s *sample) file(t testing.TB) []byte {
	t.Helper()
	if err := s.schema.Validate(); err != nil {
		t.Fatal(err)
	}
	file := bytes.NewBuffer(s.schema.Head())
	var placed []Placed
	for _, rows := range s.groups {
		offset := int64(file.Len())
		meta, n, err := s.schema.EncodeGroup(file, rows)
		if err != nil {
			t.Fatal(err)
		}
		if int64(file.Len()) != offset+n {
			t.Fatalf("%d bytes, not %d", n, int64(file.Len())-offset)
		}
		placed = append(placed, Placed{Offset: offset, Meta: meta})
	}
	tail, err := s.schema.Tail(placed)
	if err != nil {
		t.Fatal(err)
	}
	file.Write(tail)
	return file.Bytes()
}

// TestPython: pyarrow, DuckDB and pandas read what was written.
func TestPython(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow, pandas, duckdb").Run(); err != nil {
		t.Skip("pyarrow, pandas and duckdb are not installed (GPURUN_TEST_PYTHON names the interpreter)")
	}
	for name, s := range map[string]*sample{
		"rows": newSample(10, 1, 500), "none": newSample(), "empty-group": newSample(3, 0, 2), "pages": newSample(25_000),
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "out")
			schema, err := json.Marshal(s.schema.Columns)
			if err != nil {
				t.Fatal(err)
			}
			for end, data := range map[string][]byte{
				".parquet": s.file(t), ".schema.json": schema, ".jsonl": []byte(strings.Join(append(s.lines, ""), "\n")),
			} {
				if err := os.WriteFile(base+end, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := exec.Command(python, "testdata/check.py", base+".parquet").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestReadBack reads a file as an input, which checks sizes and page checksums.
func TestReadBack(t *testing.T) {
	s := newSample(10, 300)
	data := s.file(t)
	f, err := input.OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if f.Rows() != 310 || f.Groups() != 2 {
		t.Errorf("%d rows, %d row groups", f.Rows(), f.Groups())
	}
	lines := f.Lines(t.Context())
	defer lines.Close()
	text, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(got) != len(s.lines) {
		t.Fatalf("%d lines", len(got))
	}
	for i, line := range got {
		var members, want map[string]any
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatal(err)
		}
		plain := strings.ReplaceAll(s.lines[i], "NaN", "null")
		if err := json.Unmarshal([]byte(plain), &want); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"doc", ErrorColumn} { // read as the JSON that they are
			if text, ok := want[name].(string); ok {
				var value any
				if err := json.Unmarshal([]byte(text), &value); err != nil {
					t.Fatal(err)
				}
				want[name] = value
			}
		}
		for name, value := range members {
			if diff := cmp.Diff(want[name], value); diff != "" {
				t.Errorf("row %d, column %s: %s", i, name, diff)
			}
		}
	}
}

// TestDeterministic: the bytes of a row group depend on its rows alone.
func TestDeterministic(t *testing.T) {
	s := newSample(50, 50)
	var first, alone, again bytes.Buffer
	for range 2 {
		if _, _, err := s.schema.EncodeGroup(&first, s.groups[0]); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.schema.EncodeGroup(&alone, s.groups[1])
	if _, _, errAgain := newSample(50, 50).schema.EncodeGroup(&again, newSample(50, 50).groups[1]); err != nil || errAgain != nil {
		t.Fatal(err, errAgain)
	}
	if !bytes.Equal(alone.Bytes(), again.Bytes()) || !bytes.Equal(first.Bytes()[:first.Len()/2], first.Bytes()[first.Len()/2:]) {
		t.Error("the same rows give different bytes")
	}
}

func TestCheck(t *testing.T) {
	s := Schema{Columns: []Column{
		{Name: "id", Type: Int64}, {Name: "f", Type: Float64}, {Name: "g", Type: Float32}, {Name: "s", Type: String},
		{Name: "b", Type: Bool}, {Name: "x", Type: Bytes}, {Name: "j", Type: JSON}, {Name: "l", Type: Int64.List()},
		{Name: "n", Type: Float32.List().List()},
	}}
	for line, want := range map[string]string{
		`{"id":1,"f":1,"g":1e-3,"s":"a","b":true,"x":"YQ==","j":[1]}`: "",
		`{"id":null,"other":1}`:       "",
		`{}`:                          "",
		`{"id":1.0}`:                  "",
		`{"id":-9223372036854775808}`: "",
		`{"id":9223372036854775808}`:  `column "id": 9223372036854775808 is not an int64`,
		`{"id":1.5}`:                  `column "id": 1.5 is not an int64`,
		`{"id":"1"}`:                  `column "id": "1" is not an int64`,
		`{"f":"1"}`:                   `column "f": "1" is not a float64`,
		`{"f":1e999}`:                 `column "f": 1e999 is not a float64`,
		`{"g":1e39}`:                  `column "g": 1e39 is not a float32`,
		`{"s":1}`:                     `column "s": 1 is not a string`,
		`{"b":0}`:                     `column "b": 0 is not a bool`,
		`{"l":[1, 2]}`:                "",
		`{"l":[]}`:                    "",
		`{"l":null}`:                  "",
		`{"l":1}`:                     `column "l": 1 is not an int64[]`,
		`{"l":[1,"a"]}`:               `column "l": an element of the list: "a" is not an int64`,
		`{"l":[null]}`:                `column "l": an element of the list is null, not an int64`,
		`{"n":[[1, 2],[], [null]]}`:   "",
		`{"n":[]}`:                    "",
		`{"n":null}`:                  "",
		`{"n":[1]}`:                   `column "n": an element of the list: 1 is not a float32[]`,
		`{"n":[[1],null]}`:            `column "n": an element of the list is null, not a float32[]`,
		`{"n":[[[1]]]}`:               `column "n": an element of the list: [1] is not a float32`,
		`{"n":[["a"]]}`:               `column "n": an element of the list: "a" is not a float32`,
		`{"x":"%"}`:                   `column "x": "%" is not a bytes`,
		`{"s":["` + strings.Repeat("a", 50) + `"]}`: `column "s": ["` + strings.Repeat("a", 38) + `… is not a string`,
	} {
		got := ""
		if err := s.Check([]byte(line)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	s.Closed = true
	if err := s.Check([]byte(`{"other":1}`)); err == nil || err.Error() != `"other" is not a column of the output` {
		t.Error(err)
	}
	if err := s.Check([]byte(`{"_error":{}}`)); err != nil {
		t.Error(err)
	}
}

func TestInfer(t *testing.T) {
	got, err := Infer([][]byte{
		[]byte(`{"id":1,"f":1,"s":"a","b":true,"n":null,"mixed":1,"list":[1],"lists":[[1]],"words":[],"floats":[1],"big":18446744073709551615,"hash":5,"apart":-1,"huge":18446744073709551616,"hashes":[5]}`),
		[]byte(`{"id":2,"f":0.5,"s":null,"b":false,"mixed":"a","words":["a, ]","b"],"floats":[0.5],"list":[2, 3 ],"late":1,"hash":9223372036854775808,"apart":9223372036854775808,"hashes":[9223372036854775808],"_error":{}}`),
	})
	want := Schema{Closed: true, Columns: []Column{
		{Name: "id", Type: Int64}, {Name: "f", Type: Float64}, {Name: "s", Type: String}, {Name: "b", Type: Bool},
		{Name: "n", Type: JSON}, {Name: "mixed", Type: JSON}, {Name: "list", Type: Int64.List()}, {Name: "lists", Type: Int64.List().List()}, {Name: "words", Type: String.List()}, {Name: "floats", Type: Float64.List()}, {Name: "big", Type: Uint64}, {Name: "hash", Type: Uint64}, {Name: "apart", Type: JSON}, {Name: "huge", Type: JSON}, {Name: "hashes", Type: Uint64.List()},
		{Name: "late", Type: Int64},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := Infer([][]byte{[]byte(`{`)}); err == nil {
		t.Error("no error")
	}
}

func TestValidate(t *testing.T) {
	for want, columns := range map[string][]Column{
		`two columns have the name "a"`:                                 {{Name: "a", Type: Int64}, {Name: "a", Type: Int64}},
		"_error is the column of errors, and there already":             {{Name: "_error", Type: JSON}},
		`column "a": unknown type "int"`:                                {{Name: "a", Type: "int"}},
		`column "a": a kernel's values cannot have the type string`:     {{Name: "a", Type: String, Typed: true}},
		"a column has no name":                                          {{Type: Int64}},
		`column "a": unknown type "int64[][][][][][][][][]"`:            {{Name: "a", Type: "int64[][][][][][][][][]"}},
		`column "a": 6 values per row cannot have the dimensions [2 2]`: {{Name: "a", Type: Int64, Width: 6, Dimensions: []int{2, 2}, Typed: true}},
		`column "a": 6 values per row cannot have the dimensions [0 6]`: {{Name: "a", Type: Int64, Width: 6, Dimensions: []int{0, 6}, Typed: true}},
		`column "a": 0 values per row cannot have the dimensions [2 3]`: {{Name: "a", Type: Int64, Dimensions: []int{2, 3}}},
	} {
		if err := (Schema{Columns: columns}).Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMisfits: a failed record may not fit, another is an error.
func TestMisfits(t *testing.T) {
	s := Schema{Columns: []Column{{Name: "id", Type: Int64}}}
	_, _, err := s.EncodeGroup(new(bytes.Buffer), Rows{Count: 1, Lines: [][]byte{[]byte(`{"id":"x"}`)}})
	if err == nil || err.Error() != `line 1 of the row group: column "id": "x" is not an int64` {
		t.Error(err)
	}
	_, _, err = s.EncodeGroup(new(bytes.Buffer), Rows{Count: 1, Lines: [][]byte{[]byte(`{"id":"x","_error":{}}`)}})
	if err != nil {
		t.Error(err)
	}
	for _, rows := range []Rows{{Count: 1}, {Count: 1, Lines: [][]byte{[]byte("[]")}}, {Count: 1, Lines: [][]byte{[]byte("{}")}, Valid: [][]bool{{}}}} {
		if _, _, err := s.EncodeGroup(new(bytes.Buffer), rows); err == nil {
			t.Errorf("%v: no error", rows)
		}
	}
}

// BenchmarkVectors encodes vectors of 384 floats.
func BenchmarkVectors(b *testing.B) {
	const rows, width = 2048, 384
	random := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, rows*width)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	s := Schema{Columns: []Column{{Name: "id", Type: Int64}, {Name: "embedding", Type: Float32, Width: width, Typed: true}}}
	r := Rows{Count: rows, Typed: [][]byte{floats32(values)}}
	for i := range rows {
		r.Lines = append(r.Lines, fmt.Appendf(nil, `{"id":%d}`, i))
	}
	b.SetBytes(int64(len(r.Typed[0])))
	for b.Loop() {
		if _, _, err := s.EncodeGroup(new(bytes.Buffer), r); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDecodeGroup: a decoded row group encodes to the same bytes, and so do its rows in
// pieces and new rows among them. Damage is an error.
func TestDecodeGroup(t *testing.T) {
	s := newSample(100)
	rows := s.groups[0]
	var want bytes.Buffer
	meta, _, err := s.schema.EncodeGroup(&want, rows)
	if err != nil {
		t.Fatal(err)
	}
	group, err := s.schema.DecodeGroup(want.Bytes(), meta)
	if err != nil {
		t.Fatal(err)
	}
	middle := Rows{Count: 1, Lines: rows.Lines[40:41]}
	for i, typed := range rows.Typed {
		size := len(typed) / rows.Count
		middle.Valid = append(middle.Valid, rows.Valid[i][40:41])
		middle.Typed = append(middle.Typed, rows.Typed[i][40*size:41*size])
	}
	for name, pieces := range map[string][]Piece{
		"whole":  {{Old: group, To: 100}},
		"pieces": {{Old: group, To: 1}, {Old: group, From: 1, To: 77}, {Old: group, From: 77, To: 100}},
		"new":    {{Old: group, To: 40}, {New: middle}, {Old: group, From: 41, To: 100}},
	} {
		var got bytes.Buffer
		again, n, err := s.schema.EncodePieces(&got, pieces)
		if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) || !bytes.Equal(again, meta) || n != int64(want.Len()) {
			t.Errorf("%s: other bytes: %v", name, err)
		}
	}
	for at := 0; at < want.Len(); at += 7 {
		damaged := bytes.Clone(want.Bytes())
		damaged[at] ^= 8
		// Some bits of page headers mean nothing here.
		if group, err := s.schema.DecodeGroup(damaged, meta); err == nil {
			var got bytes.Buffer
			if _, _, err := s.schema.EncodePieces(&got, []Piece{{Old: group, To: group.Rows}}); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("a flipped bit in byte %d goes unnoticed", at)
			}
		}
		if _, err := s.schema.DecodeGroup(want.Bytes()[:at], meta); err == nil {
			t.Errorf("truncation to %d bytes goes unnoticed", at)
		}
	}
}
