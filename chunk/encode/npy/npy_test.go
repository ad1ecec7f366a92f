package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestHeader(t *testing.T) {
	for _, a := range []Array{{"<f4", 384, nil}, {"<f2", 1, nil}, {"<i8", 0, nil}, {"|b1", 3, nil}, {"<f4", 2048, []int{16, 128}}, {"<f8", 24, []int{2, 3, 4}}} {
		for _, rows := range []int64{0, 1, math.MaxInt64} {
			header := a.Header(rows)
			if len(header) != HeaderBytes || header[HeaderBytes-1] != '\n' {
				t.Fatalf("%d bytes: %q", len(header), header)
			}
			got, n, err := parse(header)
			if err != nil || !reflect.DeepEqual(got, a) || n != rows {
				t.Errorf("%v, %d, %v", got, n, err)
			}
			for i := range header {
				header[i] ^= 1
				if got, n, err := parse(header); err == nil && (!reflect.DeepEqual(got, a) && n != rows) {
					t.Errorf("byte %d damaged: %v, %d", i, got, n)
				}
				header[i] ^= 1
			}
		}
	}
	if a := (Array{"<f4", 384, nil}); a.RowBytes() != 1536 {
		t.Error(a.RowBytes())
	}
	for _, a := range []Array{{"<U4", 0, nil}, {"<f4", -1, nil}, {"<f4", 4, []int{4}}, {"<f4", 4, []int{2, 3}}, {"<f4", 0, []int{2, 0}}, {"<f4", 1, slices.Repeat([]int{1}, 32)}} {
		if a.Validate() == nil {
			t.Errorf("%v: no error", a)
		}
	}
}

// parse reads a header that Header wrote.
func parse(header []byte) (a Array, rows int64, err error) {
	text := strings.NewReplacer(",)", "", ")", "", ",", " ").Replace(string(header[len(magic)+2:]))
	var kind, order string
	if _, err := fmt.Sscanf(text, "{'descr': '%s 'fortran_order': %s 'shape': (%d", &kind, &order, &rows); err != nil {
		return a, 0, err
	}
	a.DType = strings.TrimSuffix(kind, "'")
	_, shape, _ := strings.Cut(text, "'shape': (")
	for _, field := range strings.Fields(strings.TrimSuffix(strings.TrimSpace(shape), "}"))[1:] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return a, 0, err
		}
		a.Width, a.Shape = max(a.Width, 1)*n, append(a.Shape, n)
	}
	if len(a.Shape) == 1 {
		a.Shape = nil
	}
	return a, rows, nil
}

// halves are numbers whose half is easily wrong.
func halves() (values []float32) {
	for h := range 1 << 16 { // every half, and the floats around the middle between two
		b := uint32(h&0x8000)<<16 | uint32(h&0x7fff)<<13 + 112<<23
		values = append(values, math.Float32frombits(b), math.Float32frombits(b+1<<12-1), math.Float32frombits(b+1<<12), math.Float32frombits(b+1<<12+1))
	}
	for e := range uint32(256) { // every exponent
		for _, fraction := range []uint32{0, 1, 1 << 12, 3 << 12, 1 << 22, 1<<23 - 1} {
			values = append(values, math.Float32frombits(e<<23|fraction), math.Float32frombits(1<<31|e<<23|fraction))
		}
	}
	return values
}

// TestNumPy: NumPy loads the arrays, and converts to half precision the same way.
func TestNumPy(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		t.Skip("numpy is not installed (GPURUN_TEST_PYTHON names the interpreter)")
	}
	folder := t.TempDir()
	values := halves()
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	var half []byte
	for _, v := range values {
		half = Float16(half, v)
	}
	const width = 4
	rows := int64(len(values) / width)
	for name, data := range map[string][]byte{
		"single.npy": append(Array{"<f4", width, nil}.Header(rows), raw...),
		"half.npy":   append(Array{"<f2", width, nil}.Header(rows), half...),
		"mask.npy":   append(Array{"|u1", 0, nil}.Header(3), 0, 1, 0),
		"none.npy":   Array{"<f8", 7, nil}.Header(0),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(python, "-c", `
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
single, half = np.load("single.npy", mmap_mode="r"), np.load("half.npy")
want = single.astype(np.float16)
same = (half.view(np.uint16) == want.view(np.uint16)) | (np.isnan(half) & np.isnan(want))
json.dump([list(single.shape), bool(same.all()), np.load("mask.npy").tolist(), list(np.load("none.npy").shape)], sys.stdout)
`)
	command.Dir = folder
	got, err := command.CombinedOutput()
	want := fmt.Sprintf("[[%d, 4], true, [0, 1, 0], [0, 7]]", rows)
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
