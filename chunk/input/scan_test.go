package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
)

// starts returns what a scan must report for the lines that start in from..to.
func starts(data []byte, begin, from, to int64) []chunk.Place {
	var all []chunk.Place
	for _, l := range chunktest.Split(data[begin:]) { // no byte order mark here
		if at := l.Offset + begin; from <= at && at < to {
			all = append(all, chunk.Place{Offset: at, Line: boolInt(l.Blank)})
		}
	}
	return all
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func openRaw(t testing.TB, data []byte) *os.File {
	file, err := os.Open(chunktest.Temporary(t, data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// TestEachLineStart checks every range of many inputs, with buffers so small that lines
// cross their borders.
func TestEachLineStart(t *testing.T) {
	r := chunktest.Seeded(t)
	inputs := make([][]byte, 0, 64)
	for _, s := range chunktest.Nasty {
		if !bytes.HasPrefix([]byte(s), byteOrderMark) {
			inputs = append(inputs, []byte(s))
		}
	}
	for range 20 {
		inputs = append(inputs, bytes.TrimPrefix(chunktest.Input(r, 6), byteOrderMark))
	}
	for _, data := range inputs {
		file, end := openRaw(t, data), int64(len(data))
		for _, size := range []int{1, 2, 3, 7, 64} {
			buffer := make([]byte, size)
			for from := int64(0); from < end; from++ {
				for to := from + 1; to <= end; to += 1 + end/16 {
					var got []chunk.Place
					err := lineScan{file, 0, end, buffer}.each(from, to, func(offset int64, blank bool) bool {
						got = append(got, chunk.Place{Offset: offset, Line: boolInt(blank)})
						return true
					})
					if err != nil {
						t.Fatal(err)
					}
					if want := starts(data, 0, from, to); !slices.Equal(got, want) {
						t.Fatalf("%q from %d to %d, buffer %d: %v, want %v", data, from, to, size, got, want)
					}
				}
			}
		}
	}
}

func TestEachLineStartStops(t *testing.T) {
	data := []byte("a\n\nb\nc")
	for want := 1; want <= 4; want++ {
		calls := 0
		err := lineScan{openRaw(t, data), 0, 6, make([]byte, 2)}.each(0, 6, func(int64, bool) bool {
			calls++
			return calls < want
		})
		if err != nil || calls != want {
			t.Errorf("reported %d lines (%v), want %d", calls, err, want)
		}
	}
}

func TestScanBlocks(t *testing.T) {
	r := chunktest.Seeded(t)
	for round := range 150 {
		shrink(t, 1+r.Int64N(40), 1+r.IntN(20), 1)
		data := chunktest.Input(r, 60)
		begin := int64(0)
		if bytes.HasPrefix(data, byteOrderMark) {
			begin = int64(len(byteOrderMark))
		}
		file, end := openRaw(t, data), int64(len(data))
		var want []scanned
		for from := begin; from < end; from += blockBytes {
			var c scanned
			_, _ = c.sum.Write(data[from:min(from+blockBytes, end)])
			for _, l := range chunktest.Split(data) {
				if from <= l.Offset && l.Offset < min(from+blockBytes, end) {
					c.add(count{lines: 1, records: 1 - boolInt(l.Blank)})
				}
			}
			want = append(want, c)
		}
		got, err := scanBlocks(t.Context(), file, begin, end, -1)
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(append([]scanned{}, got...), append([]scanned{}, want...), cmp.AllowUnexported(count{}, scanned{})) {
			t.Fatalf("round %d: %q in blocks of %d: %v, want %v", round, data, blockBytes, got, want)
		}

		// A scan that stops early returns a prefix with enough records, if there are.
		found, enough := r.Int64N(70), int64(0)
		got, err = scanBlocks(t.Context(), file, begin, end, found)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range got {
			if c != want[i] {
				t.Fatalf("block %d of a stopped scan: %v, want %v", i, c, want[i])
			}
			enough += c.records
		}
		if enough < found && len(got) < len(want) {
			t.Fatalf("stopped with %d records in %d of %d blocks, want %d", enough, len(got), len(want), found)
		}
	}
}

// TestScanRealSizes crosses the real borders, and checks that a scan that may stop early
// reads hardly more than it must.
func TestScanRealSizes(t *testing.T) {
	var data []byte
	for len(data) < int(3*blockBytes) {
		data = fmt.Appendf(data, `{"id":%d,"text":"%0*d"}`+"\n\r\n", len(data), len(data)%3000, 0)
	}
	file := openRaw(t, data)
	counts, err := scanBlocks(t.Context(), file, 0, int64(len(data)), -1)
	if err != nil {
		t.Fatal(err)
	}
	var all count
	for _, c := range counts {
		all.add(c.count)
	}
	newlines := int64(bytes.Count(data, []byte("\n")))
	if want := (count{lines: newlines, records: newlines / 2}); all != want {
		t.Errorf("counted %v, want %v", all, want)
	}
	counts, err = scanBlocks(t.Context(), file, 0, int64(len(data)), 1)
	if err != nil || len(counts) > 2 { // each core may have begun one
		t.Errorf("stopped after %d blocks (%v)", len(counts), err)
	}
}

// TestScanDamaged: a file that has shrunk is an error.
func TestScanDamaged(t *testing.T) {
	shrink(t, 16, 8, 1)
	data := bytes.Repeat([]byte("abc\n"), 100)
	for _, size := range []int64{0, 1, 15, 16, 17, 399} {
		path := chunktest.Temporary(t, data)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if _, err := scanBlocks(t.Context(), file, 0, int64(len(data)), -1); err == nil {
			t.Errorf("cut to %d bytes: no error", size)
		}
	}
}

func TestScanCanceled(t *testing.T) {
	shrink(t, 16, 8, 1)
	file := openRaw(t, bytes.Repeat([]byte("abc\n"), 100))
	if _, err := scanBlocks(canceled(t), file, 0, 400, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// benchmarkFile returns a file of at least 64 MB with lines of one length.
func benchmarkFile(b *testing.B, length int) string {
	line := append(bytes.Repeat([]byte("x"), length-1), '\n')
	line[0], line[length-2] = '{', '}'
	return chunktest.Write(b, filepath.Join(b.TempDir(), "in.jsonl"), bytes.Repeat(line, 64<<20/length+1))
}

// BenchmarkScan measures counting and splitting, which precede the first computed record.
func BenchmarkScan(b *testing.B) {
	for _, length := range []int{100, 1000} {
		path := benchmarkFile(b, length)
		for _, chunks := range []int{16, 1024} {
			b.Run(fmt.Sprintf("line=%d/chunks=%d", length, chunks), func(b *testing.B) {
				info, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(info.Size())
				for b.Loop() {
					cutFile(b, path, cutOptions{Chunks: chunks, BatchSize: 32})
				}
			})
		}
	}
}

// BenchmarkRead measures what a worker does with a chunk before it looks at records.
func BenchmarkRead(b *testing.B) {
	for _, length := range []int{100, 1000} {
		path := benchmarkFile(b, length)
		b.Run(fmt.Sprintf("line=%d", length), func(b *testing.B) {
			source := open(b, path, cutOptions{Chunks: 1})
			defer source.Close()
			c := drain(b, source)[0]
			b.SetBytes(c.Length)
			b.ReportAllocs()
			for b.Loop() {
				reader, err := OpenReader(c, 16<<20)
				if err != nil {
					b.Fatal(err)
				}
				var batch Batch
				for reader.Read(&batch, 1024, 8<<20) == nil {
					batch.Release()
				}
				reader.Close()
			}
		})
	}
}
