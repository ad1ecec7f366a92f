package parquet

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// TestDecompress: what each codec makes of data, also of none, is decompressed; other sizes are
// refused.
func TestDecompress(t *testing.T) {
	through := func(make func(io.Writer) io.WriteCloser) func([]byte) []byte {
		return func(data []byte) []byte {
			var packed bytes.Buffer
			w := make(&packed)
			_, _ = w.Write(data)
			_ = w.Close()
			return packed.Bytes()
		}
	}
	for codec, pack := range map[int32]func([]byte) []byte{
		parquet.CodecNone:   func(data []byte) []byte { return data },
		parquet.CodecSnappy: func(data []byte) []byte { return snappy.Encode(nil, data) },
		parquet.CodecGzip:   through(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
		parquet.CodecBrotli: through(func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }),
		parquet.CodecZstd: func(data []byte) []byte {
			w, _ := zstd.NewWriter(nil)
			return w.EncodeAll(data, nil)
		},
	} {
		for _, size := range []int{0, 1, 1000, 200_000} {
			data := bytes.Repeat([]byte("a"), size)
			got, err := decompress(codec, nil, pack(data), size)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("codec %d, %d bytes: %d bytes, %v", codec, size, len(got), err)
			}
			for _, other := range []int{size - 1, size + 1} {
				if _, err := decompress(codec, nil, pack(data), max(other, 0)); err == nil && other >= 0 {
					t.Errorf("codec %d, %d bytes are accepted as %d", codec, size, other)
				}
			}
		}
	}
}

// TestRuns: values are the same in whatever blocks they are decoded.
func TestRuns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		width := uint(random.IntN(9))
		var want, data []byte
		for range 1 + random.IntN(6) {
			if random.IntN(2) == 0 {
				n, value := 1+random.IntN(3000), byte(random.IntN(1<<width))
				data = binary.AppendUvarint(data, uint64(n)<<1)
				if width > 0 {
					data = append(data, value)
				}
				want = append(want, bytes.Repeat([]byte{value}, n)...)
				continue
			}
			groups := 1 + random.IntN(40)
			data = binary.AppendUvarint(data, uint64(groups)<<1|1)
			packed := make([]byte, groups*int(width))
			for i := range 8 * groups {
				value := byte(random.IntN(1 << width))
				for b := range width {
					at := uint(i)*width + b
					packed[at/8] |= value >> b & 1 << (at % 8)
				}
				want = append(want, value)
			}
			data = append(data, packed...)
		}
		want = want[:len(want)-random.IntN(5)] // the last group may have more
		r := runs{data: data, width: width, left: len(want)}
		for _, of := range []byte{0, 1, 200} {
			if n := r.occurrences(of); n != bytes.Count(want, []byte{of}) {
				t.Fatalf("%d occurrences of %d, want %d", n, of, bytes.Count(want, []byte{of}))
			}
		}
		var got []byte
		for r.left > 0 {
			block := make([]byte, min(r.left, 1+random.IntN(700)))
			readRuns(&r, block)
			got = append(got, block...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("width %d: %d values differ", width, len(want))
		}
		for cut := range data {
			r := runs{data: data[:cut], width: width, left: len(want)}
			err := func() (err error) {
				defer tree.Recovered(&err)
				readRuns(&r, make([]byte, len(want)))
				return nil
			}()
			if err == nil && cut < len(data)-8 {
				t.Fatalf("width %d: %d of %d bytes are enough", width, cut, len(data))
			}
		}
	}
}

// page returns the bytes of a page of version 1.
func page(kind, values, encoding int32, data []byte) []byte {
	h := parquet.PageHeader{Kind: kind, Unpacked: int32(len(data)), Packed: int32(len(data))}
	if kind == parquet.DictionaryPage {
		h.Dictionary = &parquet.DictionaryHeader{Values: values, Encoding: encoding}
	} else {
		h.Data = &parquet.DataHeader{Values: values, Encoding: encoding, DefinitionEncoding: parquet.EncodingRLE, RepetitionEncoding: parquet.EncodingRLE}
	}
	return append(parquet.Marshal(h), data...)
}

// TestPageOfAFewBytes: levels and indexes of a page take little memory, however many a few bytes
// stand for.
func TestPageOfAFewBytes(t *testing.T) {
	const n = 1 << 24 // a bit for each would be too much
	run := binary.AppendUvarint(nil, n<<1)
	reps, defs := append(slices.Clone(run), 1), append(slices.Clone(run), 2)
	prefixed := func(data []byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
	}
	indexes := append([]byte{1}, append(slices.Clone(run), 0)...)
	data := slices.Concat(
		page(parquet.DictionaryPage, 1, parquet.EncodingPlain, make([]byte, 8)),
		page(parquet.DataPage, n, parquet.EncodingRLEDictionary, slices.Concat(prefixed(reps), prefixed(defs), indexes)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := newCursor(bytes.NewReader(data), leaf{physical: parquet.PhysicalInt64, maxDef: 2, maxRep: 1},
		&parquet.ColumnMeta{Values: n, Packed: int64(len(data)), Unpacked: int64(len(data))}, parallel.NewMemory(t.Context(), pages, parallel.Limit(0)).Join(), nil)
	count := 0
	for ; !c.ended; c.next() {
		if v, ok := c.value(); !ok || len(v) != 8 || c.rep() != 1 {
			t.Fatalf("value %d is %v, %t", count, v, ok)
		}
		count++
	}
	runtime.ReadMemStats(&after)
	if count != n || c.err != nil {
		t.Errorf("%d of %d values, %v", count, n, c.err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d KiB were allocated for %d bytes", used>>10, len(data))
	}
}

// TestLittleMemory: with little memory a file is read in the same order, or refused.
func TestLittleMemory(t *testing.T) {
	data, err := os.ReadFile("testdata/groups.parquet")
	if err != nil {
		t.Fatal(err)
	}
	want, err := readBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	for limit, refused := range map[int64]bool{128 << 10: false, 100: true} {
		f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{Threads: 8})
		if err != nil {
			t.Fatal(err)
		}
		f.memory = limit
		lines := f.Lines(t.Context(), 0)
		text, err := io.ReadAll(lines)
		lines.Close()
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), "of memory")):
			t.Errorf("%d bytes: %v", limit, err)
		case !refused && (err != nil || string(text) != want):
			t.Errorf("%d bytes: %d bytes of lines instead of %d, %v", limit, len(text), len(want), err)
		}
	}
}

// TestLongRow: a row that a few bytes make too long is refused.
func TestLongRow(t *testing.T) {
	before := maxRow
	defer func() { maxRow = before }()
	maxRow = 20
	if _, err := read(t, "testdata/nested.parquet"); err == nil || !strings.Contains(err.Error(), "as JSON") {
		t.Errorf("a long row: %v", err)
	}
}
