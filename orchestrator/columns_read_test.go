package orchestrator_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/orchestrator"
)

// arrayHeader finds the type and the shape in the header of an array.
var arrayHeader = regexp.MustCompile(`NUMPY(?s:.*?)'descr': '(\S+)', 'fortran_order': False, 'shape': \((\d+)(.*?)\), }`)

// loadArray returns the rows of an array as numbers.
func loadArray(t *testing.T, path string) (rows [][]float64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := arrayHeader.FindSubmatch(data)
	if header == nil {
		t.Fatalf("%s: %.128q", path, data)
	}
	dtype, width := string(header[1]), 0
	n, _ := strconv.ParseInt(string(header[2]), 10, 64)
	for field := range strings.FieldsSeq(strings.ReplaceAll(string(header[3]), ",", " ")) {
		n, _ := strconv.Atoi(field)
		width = max(width, 1) * n
	}
	size, _ := strconv.Atoi(dtype[2:])
	if int64(len(data)) != npy.HeaderBytes+n*int64(size*max(1, width)) {
		t.Fatalf("%s: %d bytes for %d rows", path, len(data), n)
	}
	data = data[npy.HeaderBytes:]
	for range n {
		var row []float64
		for range max(1, width) {
			switch dtype {
			case "<f4":
				row = append(row, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
			case "<f8":
				row = append(row, math.Float64frombits(binary.LittleEndian.Uint64(data)))
			case "<i8":
				row = append(row, float64(int64(binary.LittleEndian.Uint64(data))))
			case "<f2":
				row = append(row, half(binary.LittleEndian.Uint16(data)))
			default:
				row = append(row, float64(data[0]))
			}
			data = data[size:]
		}
		rows = append(rows, row)
	}
	return rows
}

// half decodes a number in half precision.
func half(b uint16) float64 {
	sign := 1.0
	if b>>15 == 1 {
		sign = -1
	}
	exponent, fraction := int(b>>10&31), float64(b&1023)
	switch exponent {
	case 31:
		if fraction > 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	case 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// tableLines returns the rows of tables as JSON objects.
func tableLines(t *testing.T, paths ...string) (rows []map[string]any) {
	t.Helper()
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		in := decode.File(file, path, info.Size())
		kind, err := decode.Detect(in, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := decode.Open(t.Context(), in, kind, format.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(lines)
		if err != nil {
			t.Fatal(err)
		}
		lines.Close()
		for line := range bytes.Lines(data) {
			var row map[string]any
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// outputLines returns the lines of an output of plain lines.
func outputLines(t *testing.T, text string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, object)
	}
	return lines
}

// checkAgree compares rows with the lines of the same job as JSON. vector returns that of row
// i, nil if it has none; its values may differ by within.
func checkAgree(t *testing.T, lines []map[string]any, rows int, within float64, vector func(i int) []float64) {
	t.Helper()
	if rows != len(lines) {
		t.Fatalf("%d rows for %d lines", rows, len(lines))
	}
	for i, line := range lines {
		got, want := vector(i), line["vector"]
		if _, failed := line["_error"]; failed {
			if got != nil {
				t.Fatalf("row %d of a failed record has %v", i, got)
			}
			continue
		}
		list := want.([]any)
		if len(list) != len(got) {
			t.Fatalf("row %d is %v, want %v", i, got, want)
		}
		for k, value := range list {
			if number, ok := value.(float64); ok != !math.IsNaN(got[k]) || ok && math.Abs(number-got[k]) > within {
				t.Fatalf("row %d is %v, want %v", i, got, want)
			}
		}
	}
}

// runBoth runs a job, and the same with an output of plain lines, which it returns.
func runBoth(t *testing.T, d jobDir, plain, c orchestrator.Config) []map[string]any {
	t.Helper()
	if c.Output.Errors != "" {
		plain.Output.Errors = d.join("plain-errors.jsonl")
	}
	mustRun(t, d, plain)
	report := mustRun(t, d, c)
	if err := orchestrator.Verify(t.Context(), c.Output.Path, report); err != nil {
		t.Error(err)
	}
	return outputLines(t, d.read("plain.jsonl"))
}
