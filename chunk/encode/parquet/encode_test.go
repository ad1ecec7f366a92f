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
	"github.com/gpurun/gpurun/chunk/parquet"
)

// sample is a table with all types, in row groups.
type sample struct {
	schema parquet.Schema
	groups []rowGroup
	lines  []string // what readers must find
}

func floats32(values []float32) (raw []byte) {
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

// rowGroup is the rows of a row group: lines, and for each typed column the values of all rows, and
// which rows have it; nil means all.
type rowGroup struct {
	Count int
	Lines [][]byte
	Typed [][]byte
	Valid [][]bool
}

// encode writes a row group.
func (r rowGroup) encode(t testing.TB, s parquet.Schema, w io.Writer) (meta []byte) {
	t.Helper()
	g, rows, typed := NewGroup(s), s.Rows(), make([][]byte, len(r.Typed))
	var row []byte
	for i, line := range r.Lines {
		for k, values := range r.Typed {
			size := len(values) / r.Count
			if typed[k] = values[i*size : (i+1)*size]; r.Valid != nil && !r.Valid[k][i] {
				typed[k] = nil
			}
		}
		var err error
		if row, err = rows.Append(row[:0], line, typed); err == nil {
			err = g.Add(row)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pages, meta := g.Finish()
	if _, err := w.Write(bytes.Join(pages, nil)); err != nil {
		t.Fatal(err)
	}
	return meta
}

// newSample makes row groups with the given numbers of rows.
func newSample(sizes ...int) *sample {
	const width = 12
	s := &sample{schema: parquet.Schema{Columns: []parquet.Column{
		{Name: "id", Type: parquet.Int64}, {Name: "text", Type: parquet.String}, {Name: "score", Type: parquet.Float64},
		{Name: "ok", Type: parquet.Bool}, {Name: "doc", Type: parquet.JSON}, {Name: "small", Type: parquet.Float32}, {Name: "words", Type: parquet.String.List()}, {Name: "numbers", Type: parquet.Float32.List()},
		{Name: "vector", Type: parquet.Float32, Width: width, Typed: true}, {Name: "label", Type: parquet.Int64, Typed: true},
		{Name: "flag", Type: parquet.Bool, Typed: true}, {Name: "flags", Type: parquet.Bool, Width: 3, Typed: true},
		{Name: "grid", Type: parquet.Float32, Width: 12, Dimensions: []int{2, 3, 2}, Typed: true}, {Name: "nested", Type: parquet.Float64.List().List()},
		{Name: "deep", Type: parquet.String.List().List().List()}, {Name: "file", Type: parquet.StructOf("path", "bytes")},
	}}}
	random := rand.New(rand.NewPCG(1, 2))
	id := 0
	for _, size := range sizes {
		valid, labeled := make([]bool, size), make([]bool, size)
		rows := rowGroup{Count: size, Typed: make([][]byte, 5), Valid: [][]bool{valid, labeled, valid, valid, labeled}}
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
			switch id % 5 {
			case 1:
				line += `,"file":{"bytes":"AP8=","path":null}`
			case 2:
				line += fmt.Sprintf(`,"file":{"bytes":null,"path":"é/%d.png"}`, id)
			case 3:
				line += `,"file":{"bytes":null,"path":null}`
			case 4:
				line += `,"file":{"bytes":"","path":""}`
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
	file := bytes.NewBufferString(Head)
	var placed []parquet.Placed
	for _, rows := range s.groups {
		offset := int64(file.Len())
		placed = append(placed, parquet.Placed{Offset: offset, Meta: rows.encode(t, s.schema, file)})
		if n, size, err := Size(placed[len(placed)-1]); err != nil || n != int64(rows.Count) || size != int64(file.Len())-offset {
			t.Fatalf("%d rows, %d bytes, %v", n, size, err)
		}
	}
	tail, err := Tail(s.schema, placed, false)
	if err != nil {
		t.Fatal(err)
	}
	file.Write(tail)
	return file.Bytes()
}

// TestPython: pyarrow, DuckDB, pandas and polars read what was written.
func TestPython(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow, pandas, duckdb, polars").Run(); err != nil {
		t.Skip("pyarrow, pandas, duckdb and polars are not installed (GPURUN_TEST_PYTHON names the interpreter)")
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
	if f.Count() != 310 || f.Groups() != 2 {
		t.Errorf("%d rows, %d row groups", f.Count(), f.Groups())
	}
	lines := f.Lines(t.Context(), 0)
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
		for _, name := range []string{"doc", parquet.ErrorColumn} { // read as the JSON that they are
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
		s.groups[0].encode(t, s.schema, &first)
	}
	s.groups[1].encode(t, s.schema, &alone)
	newSample(50, 50).groups[1].encode(t, s.schema, &again)
	if !bytes.Equal(alone.Bytes(), again.Bytes()) || !bytes.Equal(first.Bytes()[:first.Len()/2], first.Bytes()[first.Len()/2:]) {
		t.Error("the same rows give different bytes")
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
	s := parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}, {Name: "embedding", Type: parquet.Float32, Width: width, Typed: true}}}
	r := rowGroup{Count: rows, Typed: [][]byte{floats32(values)}}
	for i := range rows {
		r.Lines = append(r.Lines, fmt.Appendf(nil, `{"id":%d}`, i))
	}
	b.SetBytes(int64(len(r.Typed[0])))
	for b.Loop() {
		r.encode(b, s, io.Discard)
	}
}

// TestRows: the rows of a file that is read are those that were written, and encode to the same file.
// Damage is an error.
func TestRows(t *testing.T) {
	s := newSample(60, 1, 40)
	want := s.file(t)
	again := func(data []byte) (file []byte, err error) {
		f, err := input.OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{})
		if err != nil {
			return nil, err
		}
		placed, err := ReadGroups(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return nil, err
		}
		out := bytes.NewBufferString(Head)
		for i := range f.Groups() {
			if i == 1 { // copied as it is
				out.Write(data[placed[1].Offset:placed[2].Offset])
				continue
			}
			g := NewGroup(s.schema)
			if err := f.Rows(t.Context(), i, g.Add); err != nil {
				return nil, err
			}
			placed[i].Offset = int64(out.Len())
			var pages [][]byte
			pages, placed[i].Meta = g.Finish()
			out.Write(bytes.Join(pages, nil))
		}
		tail, err := Tail(s.schema, placed, false)
		return append(out.Bytes(), tail...), err
	}
	if got, err := again(want); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("other bytes, %v", err)
	}
	groups, err := ReadGroups(bytes.NewReader(want), int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	last, size, _ := Size(groups[2])
	for at := int(groups[0].Offset); at < int(groups[2].Offset+size); at += 53 {
		if at >= int(groups[1].Offset) && at < int(groups[2].Offset) {
			continue
		}
		damaged := bytes.Clone(want)
		damaged[at] ^= 8
		// Some bits of page headers mean nothing here.
		if got, err := again(damaged); err == nil && !bytes.Equal(got, want) {
			t.Errorf("a flipped bit in byte %d goes unnoticed", at)
		}
	}
	if last != 40 {
		t.Errorf("%d rows", last)
	}
}

// TestNotRows: bytes that are not rows are an error.
func TestNotRows(t *testing.T) {
	s := newSample(3)
	rows, err := s.schema.Rows().Append(nil, s.groups[0].Lines[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(rows); cut++ {
		if err := NewGroup(s.schema).Add(rows[:cut]); err == nil {
			t.Errorf("%d of %d bytes are a row", cut, len(rows))
		}
	}
}

// TestBounds: bounds agree with the order of the values.
func TestBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for typ, values := range map[parquet.Type][]string{
		"decimal(5,2)": {"-999.99", "-1", "-0.01", "0", "0.01", "5", "999"}, parquet.Uint64: {"0", "1", "18446744073709551615"}, parquet.Uint32: {"0", "1", "4294967295"}, parquet.Int8: {"-128", "-1", "0", "127"},
		parquet.Date: {`"-0001-01-01"`, `"1969-12-31"`, `"1970-01-01"`, `"2026-01-01"`}, parquet.Timestamp: {`"1969-12-31T00:00:00"`, `"1970-01-01T00:00:00"`}, "time(ms)": {`"00:00:00"`, `"23:00:00"`},
	} {
		s := parquet.Schema{Columns: []parquet.Column{{Name: "c", Type: typ}}}
		row := func(value string) []byte {
			row, err := s.Rows().Append(nil, []byte(`{"c":`+value+`}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			return row
		}
		w := newColumnWriter(s.Leaves()[0], new(scratch))
		for _, i := range random.Perm(len(values)) {
			if _, err := w.add(row(values[i]), 0); err != nil {
				t.Fatal(err)
			}
		}
		w.finish()
		least, most := row(values[0]), row(values[len(values)-1])
		if got := w.meta.Statistics; !bytes.Equal(got.Min, least[1:len(least)-1]) || !bytes.Equal(got.Max, most[1:len(most)-1]) {
			t.Errorf("%s: bounds %x and %x", typ, got.Min, got.Max)
		}
	}
}
