package arrow

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
)

// damagedText is how much of a damaged file's lines is read.
const damagedText = 4 << 20

// checkDamaged reads bytes that may be damaged. It must neither panic nor use much memory;
// what it returns are JSON objects.
func checkDamaged(t testing.TB, data []byte) {
	t.Helper()
	file, _ := readFile(data, damagedText, format.Options{Threads: 2})
	stream, _ := readStream(data, damagedText, format.Options{})
	names := bytesColumns(data)
	beside, _ := readFile(data, damagedText, format.Options{Bytes: &format.Bytes{Names: names, Beside: names}})
	for _, text := range []string{file, stream, beside} {
		for line := range strings.Lines(text) {
			if strings.HasSuffix(line, "\n") && (line[0] != '{' || !json.Valid([]byte(line))) {
				t.Fatalf("not an object: %.300q", line)
			}
		}
	}
}

// damageFiles are the files that are damaged byte by byte.
var damageFiles = []string{"more.arrow", "more-lz4.arrow", "scalars-zstd.arrows", "nested.arrow", "old.arrows", "deltas.arrows", "polars.arrow", "feather-zstd.feather"}

// TestDamagedBytes changes bytes of a file in turn, and cuts it off: everywhere with
// make test-all, else at every 31st byte.
func TestDamagedBytes(t *testing.T) {
	for _, name := range damageFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, step := load(t, name), 31
			if os.Getenv("GPURUN_TEST_ALL") != "" {
				step = 1
			}
			for i := 0; i < len(data); i += step {
				before := data[i]
				for k, value := range []byte{before ^ 1, before ^ 0x80, 0, 0xff} {
					if k < 2 || value != before && value != before^1 && value != before^0x80 {
						data[i] = value
						checkDamaged(t, data)
					}
				}
				data[i] = before
				if i/step%3 == 0 {
					checkDamaged(t, data[:i])
				}
			}
		})
	}
}

// TestDamagedMemory: damage does not make the reader allocate much more than the intact file needs.
func TestDamagedMemory(t *testing.T) {
	data, most := load(t, "long-lz4.arrow"), uint64(0)
	for i := 0; i < len(data); i += 101 {
		before := data[i]
		data[i] ^= 0xff
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		checkDamaged(t, data)
		runtime.ReadMemStats(&to)
		most = max(most, to.TotalAlloc-from.TotalAlloc)
		data[i] = before
	}
	if most > 256<<20 {
		t.Errorf("%d MiB were allocated for a file of %d KiB", most>>20, len(data)>>10)
	}
}

// FuzzFile: whatever the bytes, reading ends, without a panic.
func FuzzFile(f *testing.F) {
	for _, name := range damageFiles {
		f.Add(load(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkDamaged(t, data) })
}

// one is a stream with a column of the given field, and a record batch.
func one(field arrow.Fields, rows int64, nodes, buffers []int64, body []byte, packed bool) []byte {
	list := func(numbers []int64) arrow.Structs {
		s := arrow.Structs{Size: 16}
		for _, n := range numbers {
			s.Data = binary.LittleEndian.AppendUint64(s.Data, uint64(n))
		}
		return s
	}
	batch := arrow.Fields{0: rows, 1: list(nodes), 2: list(buffers)}
	if packed {
		batch[3] = arrow.Fields{0: arrow.CodecZstd}
	}
	stream := arrow.Message(arrow.SchemaMessage, arrow.Fields{1: []arrow.Fields{field}}, 0)
	stream = append(stream, arrow.Message(arrow.BatchMessage, batch, int64(len(body)))...)
	return append(stream, body...)
}

var int64Field = arrow.Fields{0: "n", 1: 1, 2: arrow.Int, 3: arrow.Fields{0: 64, 1: 1}}

// TestBombs: a few bytes that stand for many are refused before memory is allocated for them.
func TestBombs(t *testing.T) {
	zeros, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	declared := func(size uint64, data []byte) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, size), data...)
	}
	small := declared(1<<40, zeros.EncodeAll(make([]byte, 1<<10), nil))
	large := declared(2<<30, bytes.Repeat(zeros.EncodeAll(make([]byte, 64<<20), nil), 32))
	window := declared(1<<20, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf0, 1, 0, 0}) // a window of 1 TiB
	deep := int64Field
	for range 2000 {
		deep = arrow.Fields{0: "l", 2: arrow.List, 3: arrow.Fields{}, 5: []arrow.Fields{deep}}
	}
	pad := func(data []byte) []byte { return append(data, make([]byte, 8-len(data)%8)...) }
	null := arrow.Fields{0: "n", 1: 1, 2: arrow.Null, 3: arrow.Fields{}}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"declared length":  {one(int64Field, 128, []int64{128, 0}, []int64{0, 0, 0, int64(len(small))}, pad(small), true), "does not match its header"},
		"compressed zeros": {one(int64Field, 128, []int64{128, 0}, []int64{0, 0, 0, int64(len(large))}, pad(large), true), "of memory"},
		"window":           {one(int64Field, 128, []int64{128, 0}, []int64{0, 0, 0, int64(len(window))}, pad(window), true), `column "n"`},
		"buffer":           {one(int64Field, 1<<38, []int64{1 << 38, 0}, []int64{0, 0, 0, 8}, make([]byte, 8), false), "buffer of 8 bytes"},
		"buffer outside":   {one(int64Field, 1, []int64{1, 0}, []int64{0, 0, 8, 8}, make([]byte, 8), false), "outside"},
		"rows":             {one(int64Field, 1<<50, []int64{1 << 50, 0}, []int64{0, 0, 0, 8}, make([]byte, 8), false), "rows"},
		"other rows":       {one(int64Field, 2, []int64{1, 0}, []int64{0, 0, 0, 8}, make([]byte, 8), false), "1 values for 2 rows"},
		"no rows":          {one(int64Field, 0, []int64{2, 0}, []int64{0, 0, 0, 16}, make([]byte, 16), false), "2 values for 0 rows"},
		"no nodes":         {one(int64Field, 0, nil, []int64{0, 0, 0, 16}, make([]byte, 16), false), "fewer columns"},
		"no buffers":       {one(int64Field, 0, []int64{0, 0}, nil, nil, false), "fewer columns"},
		"between words":    {one(int64Field, 1, []int64{1, 0}, []int64{0, 0, 4, 8}, make([]byte, 16), false), "no multiple of 8"},
		"deep":             {one(deep, 0, nil, nil, nil, false), "levels deep"},
		"long row": {one(arrow.Fields{0: "l", 2: arrow.FixedSizeList, 3: arrow.Fields{0: math.MaxInt32}, 5: []arrow.Fields{null}}, 2,
			[]int64{2, 0, 2 * math.MaxInt32, 0}, []int64{0, 0}, nil, false), "MiB as JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func(before int) { maxRow = before }(maxRow)
			maxRow = 1 << 20
			for kind, read := range map[string]func([]byte, int64, format.Options) (string, error){"file": readFile, "stream": readStream} {
				var from, to runtime.MemStats
				runtime.ReadMemStats(&from)
				_, err := read(test.data, math.MaxInt64, format.Options{})
				runtime.ReadMemStats(&to)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v, want %s", kind, err, test.want)
				}
				if used := to.TotalAlloc - from.TotalAlloc; used > 64<<20 {
					t.Errorf("%s: %d MiB were allocated", kind, used>>20)
				}
			}
		})
	}
}

// TestTruncated: a file without its end is refused when it is opened; a stream, where it breaks off.
func TestTruncated(t *testing.T) {
	for _, name := range []string{"nested.arrow", "batches.arrows"} {
		data := load(t, name)
		for _, cut := range []int{9, len(data) / 2, len(data) - 9} {
			if _, err := OpenFile(bytes.NewReader(data[:cut]), int64(cut), format.Options{}); err == nil {
				t.Errorf("%s is opened with %d of %d bytes", name, cut, len(data))
			}
		}
	}
	data := load(t, "batches.arrows")
	got, err := readStream(data[:len(data)-1000], math.MaxInt64, format.Options{})
	if err == nil || !strings.HasPrefix(got, `{"id":0,"word":"word 0"`) {
		t.Errorf("%v, %.100s", err, got)
	}
}

// TestFollowingStreams: all streams of a file are read, as cat makes it. Nothing else may follow the end.
func TestFollowingStreams(t *testing.T) {
	readers := map[string]func([]byte, int64, format.Options) (string, error){"file": readFile, "stream": readStream}
	for _, name := range []string{"batches.arrows", "deltas.arrows", "scalars-zstd.arrows", "nested-lz4.arrows", "old.arrows"} {
		data := load(t, name)
		want, err := readFile(data, math.MaxInt64, format.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows := int64(strings.Count(want, "\n"))
		for how, twice := range map[string][]byte{"ended": append(data[:len(data):len(data)], data...), "cut off": append(bytes.TrimSuffix(data, arrow.End()), data...)} {
			for kind, read := range readers {
				if got, err := read(twice, math.MaxInt64, format.Options{Threads: 2}); err != nil || got != want+want {
					t.Errorf("%s, %s, as a %s: %d lines, not twice %d, %v", name, how, kind, strings.Count(got, "\n"), rows, err)
				}
			}
			f, err := OpenFile(bytes.NewReader(twice), int64(len(twice)), format.Options{})
			if err != nil || f.Count() != 2*rows {
				t.Fatalf("%s: %v", name, err)
			}
			lines := f.Lines(t.Context(), rows)
			if rest, err := io.ReadAll(lines); err != nil || lines.Skipped != rows || string(rest) != want {
				t.Errorf("%s: %d of %d rows skipped, %v", name, lines.Skipped, rows, err)
			}
			if err := lines.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	data := load(t, "batches.arrows")
	for want, rest := range map[string]string{
		"columns are different": string(load(t, "more.arrows")), "truncated": "{}\n", "no length": "\xff\xff\xff\x80", "is empty": string(make([]byte, 8)),
		"not begin with a schema": string(arrow.Message(arrow.BatchMessage, arrow.Fields{0: int64(0)}, 0)),
	} {
		for kind, read := range readers {
			if _, err := read(append(data[:len(data):len(data)], rest...), math.MaxInt64, format.Options{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.10q, as a %s: %v, want %s", rest, kind, err, want)
			}
		}
	}
	file := load(t, "more.arrow")
	if _, err := readStream(append(file, file...), math.MaxInt64, format.Options{}); err == nil || !strings.Contains(err.Error(), "name the files") {
		t.Errorf("two files through a pipe: %v", err)
	}
}

// TestOptions: columns must exist and determine the order; members only leave out.
func TestOptions(t *testing.T) {
	data := load(t, "deltas.arrows")
	for want, o := range map[string]format.Options{
		`{"text":"text 0 0 é","id":0}`: {Columns: []string{"text", "id"}},
		`{"word":"word 0"}`:            {Members: []string{"word", "none"}},
		`{"id":0}`:                     {Members: []string{"id"}, Columns: []string{"word", "id"}},
		`{}`:                           {Members: []string{}},
		`{"id":21,"word":"word 0","text":"text 3 0 é"}`: {Skip: 25},
	} {
		got, err := readFile(data, math.MaxInt64, o)
		if first, _, _ := strings.Cut(got, "\n"); err != nil || first != want {
			t.Errorf("%s, %v, want %s", first, err, want)
		}
		if o.Skip > 0 {
			continue
		}
		if streamed, err := readStream(data, math.MaxInt64, o); err != nil || streamed != got {
			t.Errorf("as a stream: %v", err)
		}
	}
	for column, want := range map[string]string{
		"wrod": `there is no column "wrod"; did you mean "word"?`, "id:int64": `column "id" has its type in the file; ask for it without one`,
	} {
		if _, err := readFile(data, 1, format.Options{Columns: []string{column}}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if lines := f.Lines(context.Background(), 25); lines.First != 22 || lines.Skipped != 21 {
		t.Errorf("row %d, %d skipped", lines.First, lines.Skipped)
	} else if err := lines.Close(); err != nil {
		t.Error(err)
	}
}

// TestBadText: a row with text that is not UTF-8 is a failed record.
func TestBadText(t *testing.T) {
	got, err := readFile(load(t, "bad-text.arrow"), math.MaxInt64, format.Options{})
	want := `{"text":"fine","id":1}` + "\n" +
		`{"text":"caf�","id":2,"_error":{"kind":"row","message":"column \"text\" is not valid UTF-8"}}` + "\n" +
		`{"text":"fine","id":3}` + "\n"
	if err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
}

// TestColumns: the types of a typed output follow from those of the file.
func TestColumns(t *testing.T) {
	got := make(map[string]string)
	for _, name := range []string{"scalars.arrow", "more.arrow", "nested.arrow"} {
		data := load(t, name)
		f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Columns() {
			got[c.Name] = strings.TrimSpace(c.Type + " " + c.Lost)
		}
	}
	for name, want := range map[string]string{
		"uint16": "uint16", "float16": "float32 float16", "decimal": "decimal(7,2)", "ts_ns": "timestamp(ns)", "ts_zone": "timestamptz", "ts_s": "timestamp(ms)",
		"time_us": "time", "dictionary": "string", "ree": "string", "uuid": "uuid", "json": "json", "fixed": "binary(3)", "fixed_list": "float32[]",
		"large_list": "", "duration": "int64", "dense": "json union", "struct": "json struct", "structs": "list of struct", "null": "json null", "decimal_negative": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// TestClose: Close ends decoding, and a canceled file does not seem shorter.
func TestClose(t *testing.T) {
	data := load(t, "batches.arrows")
	f, err := OpenFile(bytes.NewReader(data), int64(len(data)), format.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	lines := f.Lines(t.Context(), 0)
	if _, err := lines.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	lines.Close()
	if _, err := io.ReadAll(lines); err == nil {
		t.Error("no error after Close")
	}
}
