package arrow

import (
	"io"
	"os"
	"testing"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// BenchmarkLines reads the file that GPURUN_BENCH_ARROW names.
func BenchmarkLines(b *testing.B) {
	path := os.Getenv("GPURUN_BENCH_ARROW")
	if path == "" {
		b.Skip("GPURUN_BENCH_ARROW names no file")
	}
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f, err := OpenFile(file, info.Size(), format.Options{Threads: 1})
		if err != nil {
			b.Fatal(err)
		}
		lines := f.Lines(b.Context(), 0)
		n, err := io.Copy(io.Discard, lines)
		if err != nil {
			b.Fatal(err)
		}
		lines.Close()
		b.SetBytes(n)
	}
}
