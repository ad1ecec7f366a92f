package arrow

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// readFile reads at most this number of bytes of lines from a file.
func readFile(data []byte, most int64, o format.Options) (string, error) {
	f, err := OpenFile(bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		return "", err
	}
	lines := f.Lines(context.Background(), o.Skip)
	defer lines.Close()
	text, err := io.ReadAll(io.LimitReader(lines, most))
	return string(text), err
}

// readStream reads the same bytes as a stream.
func readStream(data []byte, most int64, o format.Options) (string, error) {
	lines, err := Arrow.Stream(context.Background(), struct{ io.Reader }{bytes.NewReader(data)}, o)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(lines, most))
	return string(text), err
}

func load(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestGolden compares files of several writers with what testdata/write.py expects.
func TestGolden(t *testing.T) { compareFolder(t, "testdata") }

// TestLive does the same with files that the installed versions of the writers make.
func TestLive(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skip("pyarrow is not installed (GPURUN_TEST_PYTHON names the interpreter)")
	}
	folder := t.TempDir()
	if out, err := exec.Command(python, "testdata/write.py", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	compareFolder(t, folder)
}

func compareFolder(t *testing.T, folder string) {
	expected, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(expected) < 15 {
		t.Fatalf("%d files, %v", len(expected), err)
	}
	for _, path := range expected {
		path = strings.TrimSuffix(path, ".jsonl")
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path + ".jsonl")
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !Arrow.Match(data[:min(len(data), 64)], false) != strings.HasPrefix(filepath.Base(path), "old.arrows") {
				t.Error("the format is not recognized")
			}
			got, err := readFile(data, math.MaxInt64, format.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			compareLines(t, string(want), got)
			streamed, err := readStream(data, math.MaxInt64, format.Options{})
			if noStream := strings.HasPrefix(filepath.Base(path), "polars"); noStream != (err != nil) || !noStream && streamed != got {
				t.Errorf("as a stream: %v", err)
			}
			f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{})
			if err != nil || f.Count() != int64(strings.Count(got, "\n")) {
				t.Errorf("%d rows, %v", f.Count(), err)
			}
		})
	}
}

// compareLines compares JSON by value, and the names of the members by their order.
func compareLines(t *testing.T, want, got string) {
	t.Helper()
	wanted, lines := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	if len(wanted) != len(lines) {
		t.Fatalf("%d lines, want %d: %.300s", len(lines)-1, len(wanted)-1, got)
	}
	for i := range wanted {
		if wanted[i] == lines[i] {
			continue
		}
		if diff := cmp.Diff(decode(t, wanted[i]), decode(t, lines[i]), cmp.Comparer(sameNumber)); diff != "" {
			t.Fatalf("line %d: %s\n%s", i+1, diff, lines[i])
		}
	}
}

func decode(t *testing.T, line string) (value any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return value
}

func sameNumber(a, b json.Number) bool {
	x, ok := new(big.Rat).SetString(string(a))
	y, okToo := new(big.Rat).SetString(string(b))
	return ok && okToo && x.Cmp(y) == 0
}
