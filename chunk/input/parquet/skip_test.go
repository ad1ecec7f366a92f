package parquet

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// osFile is a file on disk as a format reads it.
type osFile struct {
	*os.File
	size int64
	read int64
}

func (f *osFile) Size() int64 { return f.size }

func (f *osFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	f.read += int64(n)
	return n, err
}

func openTestFile(t *testing.T, path string) *osFile {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return &osFile{File: file, size: info.Size()}
}

// TestSkip: a decoder leaves out the row groups before the rows that are needed, and numbers
// the others as before. The number of rows is in the footer.
func TestSkip(t *testing.T) {
	const path = "testdata/groups.parquet"
	all, err := read(t, path)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.SplitAfter(strings.TrimSuffix(all, "\n"), "\n")
	rows[len(rows)-1] += "\n"
	table, err := Parquet.Open(openTestFile(t, path), format.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := table.Count()
	if n != int64(len(rows)) {
		t.Fatalf("it has %d rows, want %d", n, len(rows))
	}
	var starts []int64
	for _, skip := range []int64{0, 1, n / 3, n / 2, n - 1, n, n + 5} {
		lines := table.Lines(context.Background(), skip)
		text, err := io.ReadAll(lines)
		lines.Close()
		if err != nil || lines.Skipped > skip || lines.First != lines.Skipped+1 || string(text) != strings.Join(rows[lines.Skipped:], "") {
			t.Errorf("skip %d: %d skipped, the first is %d, %v", skip, lines.Skipped, lines.First, err)
		}
		starts = append(starts, lines.Skipped)
	}
	if starts[1] != 0 || starts[4] == 0 || starts[5] != n {
		t.Errorf("row groups were left out up to %d", starts)
	}
}
