package arrow

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	input "github.com/gpurun/gpurun/chunk/input/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// sampleSchema has a column of each type, and typed ones.
var sampleSchema = func() (s parquet.Schema) {
	for _, typ := range []parquet.Type{"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
		"string", "json", "bytes", "binary(3)", "uuid", "date", "time", "time(ms)", "time(ns)", "timestamp", "timestamp(ms)", "timestamptz(ns)",
		"decimal(7,2)", "decimal(38,0)", "decimal(76,5)", "string[]", "int16[][]", "float32[]", "decimal(5,1)[]", "bool[]", "struct(bytes,path)", "struct(path,bytes)"} {
		s.Columns = append(s.Columns, parquet.Column{Name: string(typ), Type: typ})
	}
	s.Columns = append(s.Columns, parquet.Column{Name: "vector", Type: parquet.Float32, Width: 4, Typed: true},
		parquet.Column{Name: "grid", Type: parquet.Int64, Width: 6, Dimensions: []int{2, 3}, Typed: true}, parquet.Column{Name: "flag", Type: parquet.Bool, Typed: true})
	return s
}()

// sampleLines are results without the typed columns.
var sampleLines = []string{
	`{"bool":true,"int8":-128,"int16":-32768,"int32":-2147483648,"int64":-9223372036854775808,"uint8":255,"uint16":65535,"uint32":4294967295,"uint64":18446744073709551615,` +
		`"float32":0.5,"float64":-1e300,"string":"é\n","json":{"a":[1]},"bytes":"AP8=","binary(3)":"YWJj","uuid":"00112233-4455-6677-8899-aabbccddeeff","date":"2026-01-31",` +
		`"time":"23:59:59.123456","time(ms)":"00:00:00.001","time(ns)":"00:00:00.000000001","timestamp":"1969-12-31T23:59:59.999999","timestamp(ms)":"2026-01-31T00:00:00","timestamptz(ns)":"2026-01-31T01:02:03.000000004Z",` +
		`"decimal(7,2)":-12345.67,"decimal(38,0)":-12345678901234567890123456789012345678,"decimal(76,5)":1234567890123456789012345678901234567890.12345,` +
		`"string[]":["a",""],"int16[][]":[[1,-2],[],[3]],"float32[]":[1.5,null],"decimal(5,1)[]":[1.5,-2.0],"bool[]":[true,false,true],` +
		`"struct(bytes,path)":{"bytes":"AP8=","path":"é.png"},"struct(path,bytes)":{"bytes":"","path":null}}`,
	`{}`,
	`{"bool":false,"string":"","json":null,"bytes":"","string[]":[],"int16[][]":[],"float32[]":[],"bool[]":[],"decimal(7,2)":0.05,"struct(bytes,path)":{"bytes":null,"path":null},"struct(path,bytes)":{"bytes":null,"path":""},"_error":{"kind":"row","message":"bad"}}`,
}

// encode returns a file with record batches of these numbers of rows.
func encode(t testing.TB, batches ...int) (file []byte, rows [][]byte) {
	t.Helper()
	file = Head(sampleSchema)
	var placed []parquet.Placed
	makes, number := sampleSchema.Rows(), 0
	for _, size := range batches {
		g := NewGroup(sampleSchema)
		for range size {
			var typed [][]byte
			if number%3 != 1 {
				vector, grid := []byte(nil), []byte(nil)
				for i := range 4 {
					vector = binary.LittleEndian.AppendUint32(vector, math.Float32bits(float32(number+i)))
				}
				for i := range 6 {
					grid = binary.LittleEndian.AppendUint64(grid, uint64(number*10+i))
				}
				typed = [][]byte{vector, grid, {byte(number % 2)}}
			}
			row, err := makes.Append(nil, []byte(sampleLines[number%len(sampleLines)]), typed)
			if err == nil {
				err = g.Add(row)
			}
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
			number++
		}
		data, meta := g.Finish()
		placed = append(placed, parquet.Placed{Offset: int64(len(file)), Meta: meta})
		file = append(file, bytes.Join(data, nil)...)
		if n, bytes, err := Size(placed[len(placed)-1]); err != nil || n != int64(size) || bytes != int64(len(file))-placed[len(placed)-1].Offset || len(file)%align != 0 {
			t.Errorf("%d rows, %d bytes, %v", n, bytes, err)
		}
	}
	tail, err := Tail(sampleSchema, placed, false)
	if err != nil {
		t.Fatal(err)
	}
	file = append(file, tail...)
	again, err := ReadGroups(bytes.NewReader(file), int64(len(file)))
	if diff := cmp.Diff(placed, again); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	return file, rows
}

// TestReadBack: the reader of inputs returns the values, and the rows of a retry are those that were written.
func TestReadBack(t *testing.T) {
	file, rows := encode(t, 4, 1, 7)
	f, err := input.OpenFile(bytes.NewReader(file), int64(len(file)), format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lines := f.Lines(t.Context(), 0)
	defer lines.Close()
	data, err := io.ReadAll(lines)
	if err != nil || f.Count() != 12 {
		t.Fatal(err)
	}
	number := 0
	for line := range bytes.Lines(data) {
		var got, want map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(sampleLines[number%len(sampleLines)]), &want); err != nil {
			t.Fatal(err)
		}
		if number%3 != 1 {
			n := float64(number)
			want["vector"], want["flag"] = []any{n, n + 1, n + 2, n + 3}, number%2 == 1
			want["grid"] = []any{[]any{n * 10, n*10 + 1, n*10 + 2}, []any{n*10 + 3, n*10 + 4, n*10 + 5}}
		}
		for name, value := range got {
			if diff := cmp.Diff(want[name], value); diff != "" {
				t.Errorf("row %d, %s: %s", number, name, diff)
			}
		}
		number++
	}
	var again [][]byte
	for batch := range 3 {
		if err := f.Rows(t.Context(), batch, func(row []byte) error { again = append(again, bytes.Clone(row)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(rows, again); diff != "" {
		t.Error(diff)
	}
	for _, c := range f.Columns() {
		if at := parquet.Find(sampleSchema.Columns, c.Name); at >= 0 && !sampleSchema.Columns[at].Typed && c.Type != string(sampleSchema.Columns[at].Type) && c.Name != "uuid" {
			t.Errorf("%s is %s", c.Name, c.Type)
		}
	}
}

// TestPython: pyarrow maps a file into memory, and polars, pandas and DuckDB read it.
func TestPython(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skip("pyarrow is not installed (GPURUN_TEST_PYTHON names the interpreter)")
	}
	for _, batches := range [][]int{{4, 1, 3000}, {}} {
		file, rows := encode(t, batches...)
		path := filepath.Join(t.TempDir(), "out.arrow")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(python, "testdata/check.py", path, fmt.Sprint(len(rows)), strings.ReplaceAll(sampleLines[0], "null", "NaN")).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestDamagedRows: bytes that are not rows are refused.
func TestDamagedRows(t *testing.T) {
	_, rows := encode(t, 1)
	for cut := 1; cut < len(rows[0]); cut++ {
		if NewGroup(sampleSchema).Add(rows[0][:cut]) == nil {
			t.Errorf("%d of %d bytes are accepted", cut, len(rows[0]))
		}
	}
}

func BenchmarkVectors(b *testing.B) {
	schema := parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}, {Name: "v", Type: parquet.Float32, Width: 384, Typed: true}}}
	row, err := schema.Rows().Append(nil, []byte(`{"id":1}`), [][]byte{make([]byte, 4*384)})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(2048 * len(row)))
	for b.Loop() {
		g := NewGroup(schema)
		for range 2048 {
			if err := g.Add(row); err != nil {
				b.Fatal(err)
			}
		}
		g.Finish()
	}
}
