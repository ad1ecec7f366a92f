package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestHeader(t *testing.T) {
	for _, shape := range [][]int{nil, {384}, {1}, {16, 128}, {2, 3, 4}} {
		for _, rows := range []int64{0, 1, math.MaxInt64} {
			header := Header("<f4", rows, shape)
			if len(header) != HeaderBytes || header[HeaderBytes-1] != '\n' {
				t.Fatalf("%d bytes: %q", len(header), header)
			}
			if dtype, got, err := parse(header); err != nil || dtype != "<f4" || got[0] != rows || len(got) != len(shape)+1 {
				t.Errorf("%s, %v, %v", dtype, got, err)
			}
		}
	}
	if n := len(Header("<f4", math.MaxInt64, slices.Repeat([]int{1}, 32))); n <= HeaderBytes {
		t.Errorf("%d bytes", n)
	}
}

// parse reads a header that Header wrote.
func parse(header []byte) (dtype string, dimensions []int64, err error) {
	text := strings.NewReplacer(",)", "", ")", "", ",", " ").Replace(string(header[len(magic)+2:]))
	var order string
	if _, err := fmt.Sscanf(text, "{'descr': '%s 'fortran_order': %s", &dtype, &order); err != nil {
		return "", nil, err
	}
	_, shape, _ := strings.Cut(text, "'shape': (")
	for _, field := range strings.Fields(strings.TrimSuffix(strings.TrimSpace(shape), "}")) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return "", nil, err
		}
		dimensions = append(dimensions, n)
	}
	return strings.TrimSuffix(dtype, "'"), dimensions, nil
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
		"single.npy": append(Header("<f4", rows, []int{width}), raw...),
		"half.npy":   append(Header("<f2", rows, []int{width}), half...),
		"mask.npy":   append(Header("|u1", 3, nil), 0, 1, 0),
		"none.npy":   Header("<f8", 0, []int{7}),
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
