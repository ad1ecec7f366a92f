package arrow

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// bytesColumns returns the columns of bytes of a file.
func bytesColumns(data []byte) (names []string) {
	if f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{}); err == nil {
		for _, c := range f.Columns() {
			if c.Bytes {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// TestBytes: columns of bytes are beside the lines, with the same values, and not in them.
func TestBytes(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.jsonl")
	seen := 0
	for _, expected := range files {
		name := strings.TrimSuffix(filepath.Base(expected), ".jsonl")
		data := load(t, name)
		names := bytesColumns(data)
		if len(names) == 0 || name == "empty.arrow" {
			continue
		}
		o := format.Options{Threads: 2, Bytes: &format.Bytes{Names: names, Beside: names}}
		f, err := OpenFile(bytes.NewReader(data), int64(len(data)), o)
		if err != nil {
			t.Fatal(name, err)
		}
		ways := []format.Lines{f.Lines(t.Context(), 0)}
		if !isFile(data) {
			stream, err := Arrow.Stream(context.Background(), struct{ io.Reader }{bytes.NewReader(data)}, o)
			if err != nil {
				t.Fatal(name, err)
			}
			ways = append(ways, stream)
		}
		golden, err := os.ReadFile(expected)
		if err != nil {
			t.Fatal(err)
		}
		for _, lines := range ways {
			seen += compareBytes(t, name, names, lines, string(golden))
		}
	}
	if seen < 10 {
		t.Errorf("%d values", seen)
	}
}

func compareBytes(t *testing.T, name string, names []string, lines format.Lines, golden string) (seen int) {
	t.Helper()
	text, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(name, err)
	}
	defer lines.Close()
	got := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range strings.Split(strings.TrimSuffix(golden, "\n"), "\n") {
		var want, have map[string]any
		if json.Unmarshal([]byte(line), &want) != nil || json.Unmarshal([]byte(got[i]), &have) != nil {
			t.Fatalf("%s: %.200s, %.200s", name, line, got[i])
		}
		blobs := lines.Blobs()
		for k, column := range names {
			if _, inline := have[column]; inline {
				t.Errorf("%s, row %d: the line has %s", name, i+1, column)
			}
			var value any
			if blobs[k].Kind.HasBytes() {
				value = base64.StdEncoding.EncodeToString(blobs[k].Data)
			}
			if file, ok := want[column].(map[string]any); ok { // bytes and path
				want[column] = file["bytes"]
			}
			if value != want[column] {
				t.Errorf("%s, row %d, column %s: %v, not %v", name, i+1, column, value, want[column])
			}
			seen++
		}
	}
	return seen
}
