package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// workload is a table as jobs write it.
type workload struct {
	schema parquet.Schema
	rows   rowGroup
}

// workloads are texts, vectors and columns that repeat.
func workloads(rows int) map[string]workload {
	const width = 128
	random := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 5000)
	for i := range words {
		words[i] = strconv.FormatUint(random.Uint64(), 36)[:2+random.IntN(8)]
	}
	zipf := rand.NewZipf(random, 1.1, 3, uint64(len(words)-1))
	texts, vectors, repeated := rowGroup{Count: rows}, rowGroup{Count: rows, Typed: make([][]byte, 1)}, rowGroup{Count: rows}
	for i := range rows {
		var text strings.Builder
		for range 40 + random.IntN(120) {
			text.WriteString(words[zipf.Uint64()] + " ")
		}
		texts.Lines = append(texts.Lines, fmt.Appendf(nil, `{"id":%d,"text":"%s"}`, i, text.String()))
		vectors.Lines = append(vectors.Lines, fmt.Appendf(nil, `{"id":%d}`, i))
		for range width {
			vectors.Typed[0] = binary.LittleEndian.AppendUint32(vectors.Typed[0], math.Float32bits(float32(random.NormFloat64())))
		}
		repeated.Lines = append(repeated.Lines, fmt.Appendf(nil, `{"label":"label-%d","host":"https://www.example-%d.com/","score":%d,"tags":["a%d","b%d"]}`,
			random.IntN(20), random.IntN(3000), random.IntN(100), random.IntN(9), random.IntN(9)))
	}
	id := parquet.Column{Name: "id", Type: parquet.Int64}
	return map[string]workload{
		"texts":   {parquet.Schema{Columns: []parquet.Column{id, {Name: "text", Type: parquet.String}}}, texts},
		"vectors": {parquet.Schema{Columns: []parquet.Column{id, {Name: "vector", Type: parquet.Float32, Width: width, Typed: true}}}, vectors},
		"repeated": {parquet.Schema{Columns: []parquet.Column{
			{Name: "label", Type: parquet.String}, {Name: "host", Type: parquet.String}, {Name: "score", Type: parquet.Int64}, {Name: "tags", Type: parquet.String.List()},
		}}, repeated},
	}
}

// TestSizes: files are at most 5% larger than what pyarrow writes.
func TestSizes(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "../../../.venv/bin/python"
	}
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skip("pyarrow is not installed (GPURUN_TEST_PYTHON names the interpreter)")
	}
	var paths []string
	for name, w := range workloads(50_000) {
		path := filepath.Join(t.TempDir(), name+".parquet")
		s := sample{schema: w.schema, groups: []rowGroup{w.rows}}
		if err := os.WriteFile(path, s.file(t), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	out, err := exec.Command(python, append([]string{"testdata/size.py"}, paths...)...).Output()
	ratios := strings.Fields(string(out))
	if err != nil || len(ratios) != len(paths) {
		t.Fatalf("%s, %v", out, err)
	}
	for i, path := range paths {
		ratio, err := strconv.ParseFloat(ratios[i], 64)
		if err != nil || ratio > 1.05 {
			t.Errorf("%s: %.3f times the size of pyarrow's file, %v", filepath.Base(path), ratio, err)
		}
		t.Logf("%s: %.3f times the size of pyarrow's file", filepath.Base(path), ratio)
	}
}

// BenchmarkEncode encodes results with their JSON.
func BenchmarkEncode(b *testing.B) {
	for name, w := range workloads(20_000) {
		b.Run(name, func(b *testing.B) {
			raw := len(bytes.Join(w.rows.Lines, nil))
			for _, values := range w.rows.Typed {
				raw += len(values)
			}
			b.SetBytes(int64(raw))
			for b.Loop() {
				w.rows.encode(b, w.schema, io.Discard)
			}
		})
	}
}
