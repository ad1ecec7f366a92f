package parquet

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

// read returns the rows of a file as lines.
func read(t testing.TB, path string, members ...string) (string, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return readBytes(data, members...)
}

func readBytes(data []byte, members ...string) (string, error) {
	return readSome(data, math.MaxInt64, members...)
}

// readSome reads lines of at most this number of bytes together.
func readSome(data []byte, most int64, members ...string) (string, error) {
	f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{Columns: members, Threads: 2})
	if err != nil {
		return "", err
	}
	lines := f.Lines(context.Background(), 0)
	defer lines.Close()
	text, err := io.ReadAll(io.LimitReader(lines, most))
	return string(text), err
}

// TestGolden compares files of several writers with what testdata/write.py expects.
func TestGolden(t *testing.T) { compareFolder(t, "testdata") }

// TestLive does the same with files that the installed versions of the writers make.
func TestLive(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow, pandas, duckdb").Run(); err != nil {
		t.Skip("pyarrow, pandas and duckdb are not installed (GPURUN_TEST_PYTHON names the interpreter)")
	}
	folder := t.TempDir()
	if out, err := exec.Command(python, "testdata/write.py", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	compareFolder(t, folder)
}

func compareFolder(t *testing.T, folder string) {
	expected, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(expected) < 10 {
		t.Fatalf("%d files, %v", len(expected), err)
	}
	for _, path := range expected {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(t, strings.TrimSuffix(path, ".jsonl")+".parquet")
			if err != nil {
				t.Fatal(err)
			}
			compareLines(t, string(want), got)
		})
	}
}

// compareLines compares JSON by value, in which the order of members does not matter, and
// the names of the members by their order.
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

// TestMembers: columns must exist and determine the order; members only leave out.
func TestMembers(t *testing.T) {
	got, err := read(t, "testdata/plain.parquet", "label", "id")
	if want := `{"label":null,"id":0}` + "\n" + `{"label":"label-1","id":1}` + "\n"; err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("%.200s, %v", got, err)
	}
	for member, want := range map[string]string{
		"lable":    `there is no column "lable"; did you mean "label"?`,
		"other":    `there is no column "other"; the columns are id, text, label, vector, tags`,
		"id:int64": `column "id" has its type in the file; ask for it without one`,
	} {
		if _, err := read(t, "testdata/plain.parquet", member); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	data, err := os.ReadFile("testdata/plain.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]format.Options{
		`{"id":0,"label":null}`: {Members: []string{"label", "score", "id", "id"}},
		`{"label":null}`:        {Members: []string{"label"}, Columns: []string{"id", "label"}},
		`{}`:                    {Members: []string{}},
	} {
		f, err := OpenFile(bytes.NewReader(data), int64(len(data)), o)
		if err != nil {
			t.Fatal(err)
		}
		lines := f.Lines(t.Context(), 0)
		text, err := io.ReadAll(lines)
		lines.Close()
		if got, _, _ := strings.Cut(string(text), "\n"); err != nil || got != want || strings.Count(string(text), "\n") != 50 {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

// TestBadText: a row with text that is not UTF-8 is a failed record.
func TestBadText(t *testing.T) {
	data, err := os.ReadFile("testdata/bad-text.parquet")
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lines := f.Lines(t.Context(), 0)
	got, err := io.ReadAll(lines)
	lines.Close()
	want := `{"text":"fine","id":1}` + "\n" +
		`{"text":"caf�","id":2,"_error":{"kind":"row","message":"column \"text\" is not valid UTF-8"}}` + "\n" +
		`{"text":"fine","id":3}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// TestOrder: row groups are decoded in parallel and arrive in order.
func TestOrder(t *testing.T) {
	data, err := os.ReadFile("testdata/groups.parquet")
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, threads := range []int{1, 3, 8} {
		f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		if f.Groups() != 15 || f.Count() != 100 {
			t.Fatalf("%d row groups, %d rows", f.Groups(), f.Count())
		}
		lines := f.Lines(context.Background(), 0)
		text, err := io.ReadAll(lines)
		if err := lines.Close(); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(text)
		}
		if err != nil || string(text) != want || strings.Count(want, "\n") != 100 {
			t.Fatalf("%d threads: %v, %.200s", threads, err, text)
		}
	}
}

// TestCancel: after the end of the context, and after Close, Read fails instead of
// reporting a shorter file.
func TestCancel(t *testing.T) {
	data, err := os.ReadFile("testdata/groups.parquet")
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	lines := f.Lines(ctx, 0)
	if _, err := lines.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(lines); err == nil {
		t.Error("no error after the end of the context")
	}
	lines.Close()

	lines = f.Lines(context.Background(), 0)
	lines.Close()
	if _, err := io.ReadAll(lines); err == nil {
		t.Error("no error after Close")
	}
}
