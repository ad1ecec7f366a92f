package input

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// TestReader reads random inputs in random ways, and every rest again.
func TestReader(t *testing.T) {
	r := chunktest.Seeded(t)
	path := filepath.Join(t.TempDir(), "in.jsonl")
	for round := range 250 {
		data := chunktest.Input(r, 30)
		if round < len(chunktest.Nasty) {
			data = []byte(chunktest.Nasty[round])
		}
		chunktest.Write(t, path, data)
		shrink(t, 1+r.Int64N(64), 1+r.IntN(32), 1+r.IntN(64))
		source := open(t, path, cutOptions{Chunks: 1 + r.IntN(4)})
		all, _ := chunktest.Records(data)
		o := readOptions{maxRecords: 1 + r.IntN(8), maxBytes: 1 + r.IntN(200), maxRecord: r.Int64N(80)}
		if r.IntN(8) == 0 {
			o.maxRecord = math.MaxInt64
		}
		for _, c := range drain(t, source) {
			checkChunk(t, c, all[c.First:c.First+c.Records], o)
		}
		closeSource(t, source)
		if t.Failed() {
			t.Fatalf("%q read by %+v, at least %d bytes a time", data, o, minRead)
		}
	}
}

func checkChunk(t *testing.T, c chunk.Chunk, want []chunktest.Line, o readOptions) {
	t.Helper()
	reader, err := OpenReader(c, o.maxRecord)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var batch Batch
	for {
		err := reader.Read(&batch, o.maxRecords, o.maxBytes)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		checkBatch(t, &batch, o)
		checkLines(t, &batch, c.File)
		got := lines(&batch)
		if len(got) > len(want) {
			t.Fatalf("%d records more than there are", len(got)-len(want))
		}
		if diff := cmp.Diff(want[:len(got)], got); diff != "" {
			t.Error(diff)
		}
		want = want[len(got):]
		rest := batch.Rest()
		if rest.Records != int64(len(want)) || rest.Offset+rest.Length != c.Offset+c.Length {
			t.Errorf("rest %+v of %+v, with %d records left", rest, c, len(want))
		}
		again, err := readChunk(rest, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]chunktest.Line{}, want...), append([]chunktest.Line{}, again...)); diff != "" {
			t.Errorf("rest: %s", diff)
		}
		batch.Release()
	}
	if len(want) > 0 {
		t.Errorf("%d records were not read", len(want))
	}
	if len(batch.Records) != 0 {
		t.Errorf("io.EOF came with %d records", len(batch.Records))
	}
}

// checkBatch checks that a batch keeps its limits and reports lines that are too long.
func checkBatch(t *testing.T, b *Batch, o readOptions) {
	t.Helper()
	size := 0
	for _, record := range b.Records {
		size += len(record.Data)
		if tooLong := int64(len(record.Data)) > o.maxRecord; record.TooLong != tooLong {
			t.Errorf("too long: %v for %d bytes of %d", record.TooLong, len(record.Data), o.maxRecord)
		}
	}
	if len(b.Records) > o.maxRecords || len(b.Records) > 1 && size > o.maxBytes {
		t.Errorf("%d records of %d bytes", len(b.Records), size)
	}
	if len(b.mapped) > 0 && len(b.Records) > 1 {
		t.Errorf("a line too long to read is in a batch of %d", len(b.Records))
	}
}

// checkLines checks that Lines returns, from each record on, the lines that the file has
// there, each followed by one newline and nothing else.
func checkLines(t *testing.T, b *Batch, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Records {
		var want []string
		for _, r := range b.Records[i:] {
			end := r.Offset + int64(len(r.Data))
			adjacent := len(want) == 0 || data[r.Offset-1] == '\n' && r.Offset == b.Records[i].Offset+int64(len(strings.Join(want, "")))
			if len(b.mapped) > 0 || !adjacent || end == int64(len(data)) || data[end] != '\n' {
				break
			}
			want = append(want, string(r.Data)+"\n")
		}
		if got, n := b.Lines(i, len(b.Records)); n != len(want) || string(got) != strings.Join(want, "") {
			t.Errorf("%d lines from record %d on: %q instead of %q", n, i, got, want)
		}
		if got, n := b.Lines(i, i+1); n != min(1, len(want)) || cap(got) != len(got) {
			t.Errorf("%d lines of one record: %q with room for %d bytes", n, got, cap(got))
		}
	}
}

// TestReaderLimit covers lines around the limit, with either line ending.
func TestReaderLimit(t *testing.T) {
	for _, smallest := range []int{1, 1 << 10} {
		shrink(t, blockBytes, readBytes, smallest)
		for _, end := range []string{"\n", "\r\n", ""} {
			for length := 8; length <= 12; length++ {
				data := "a\n" + strings.Repeat("x", length) + end
				got := readRecords(t, []byte(data), readOptions{maxRecords: 9, maxBytes: 99, maxRecord: 10})
				last := got[len(got)-1]
				if string(last.Data) != strings.Repeat("x", length) || last.TooLong != (length > 10) {
					t.Errorf("%q in reads of %d: too long %v, %q", data, smallest, last.TooLong, last.Data)
				}
			}
		}
	}
}

// readRecords reads data as one chunk and copies the records' bytes.
func readRecords(t testing.TB, data []byte, o readOptions) []Record {
	t.Helper()
	source := open(t, chunktest.Temporary(t, data), cutOptions{})
	defer source.Close()
	var all []Record
	for _, c := range drain(t, source) {
		reader, err := OpenReader(c, o.maxRecord)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		var batch Batch
		for reader.Read(&batch, o.maxRecords, o.maxBytes) == nil {
			for _, record := range batch.Records {
				record.Data = bytes.Clone(record.Data)
				all = append(all, record)
			}
			batch.Release()
		}
	}
	return all
}

// TestReaderLongLine: a line far beyond the limit is mapped, alone in its batch, and does
// not disturb the lines around it.
func TestReaderLongLine(t *testing.T) {
	long := `{"text":"` + strings.Repeat("é", 200<<10) + `"}`
	blank := strings.Repeat(" ", 300<<10)
	data := "1\n2\n" + long + "\r\n3\n" + blank + "\n" + long + "\n" + blank + "4\n" + long
	source := open(t, chunktest.Temporary(t, []byte(data)), cutOptions{})
	defer closeSource(t, source)
	c := drain(t, source)[0]
	want, _ := chunktest.Records([]byte(data))
	checkChunk(t, c, want, readOptions{maxRecords: 10, maxBytes: 1 << 20, maxRecord: 1000})
	checkChunk(t, c, want, readOptions{maxRecords: 10, maxBytes: 1 << 20, maxRecord: 1 << 20})

	reader, err := OpenReader(c, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	var batches []*Batch
	for {
		batch := new(Batch)
		if err := reader.Read(batch, 10, 1<<20); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, len(batch.Records))
		batches = append(batches, batch)
	}
	if diff := cmp.Diff([]int{2, 1, 1, 1, 1, 1}, got); diff != "" {
		t.Errorf("records in batches: %s", diff)
	}
	// Mapped bytes outlive the reader.
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if len(batches[1].mapped) != 1 || string(batches[1].Records[0].Data) != long {
		t.Error("the long line is not mapped, or changed")
	}
	for _, batch := range batches {
		batch.Release()
	}
}

// TestReaderHugeLine: the heap does not grow with a line.
func TestReaderHugeLine(t *testing.T) {
	if testing.Short() {
		t.Skip("200 MB")
	}
	const size = 200 << 20
	path := filepath.Join(t.TempDir(), "in.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte("x"), 1<<20)
	fmt.Fprint(file, `{"text":"`)
	for range size / len(piece) {
		if _, err := file.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprint(file, "\"}\r\n{}\n")
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	source := open(t, path, cutOptions{})
	defer closeSource(t, source)
	reader, err := OpenReader(drain(t, source)[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var batch Batch
	if err := reader.Read(&batch, 1024, 64<<20); err != nil {
		t.Fatal(err)
	}
	long := batch.Records[0]
	if !long.TooLong || len(long.Data) != size+11 || bytes.Count(long.Data, []byte("x")) != size+1 {
		t.Errorf("too long %v, %d bytes", long.TooLong, len(long.Data))
	}
	var written tally
	if err := record.WriteMarked(&written, long.Data, record.Mark{Kind: fault.Record, Line: 1}); err != nil {
		t.Fatal(err)
	}
	if written < size {
		t.Errorf("%d bytes written", written)
	}
	batch.Release()
	runtime.ReadMemStats(&after)
	// The reader reads up to the limit before it knows that the line is too long.
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d MB allocated", got>>20)
	}
	if err := reader.Read(&batch, 1024, 64<<20); err != nil || string(batch.Records[0].Data) != "{}" {
		t.Errorf("the next line: %v", err)
	}
	batch.Release()
}

// tally counts bytes.
type tally int64

func (c *tally) Write(p []byte) (int, error) {
	*c += tally(len(p))
	return len(p), nil
}

// TestReaderBlankDesert: the heap does not grow with blank lines either.
func TestReaderBlankDesert(t *testing.T) {
	desert := strings.Repeat(" \n", 1<<20)
	source := open(t, chunktest.Temporary(t, []byte("1\n"+desert+"2\n"+desert)), cutOptions{})
	defer closeSource(t, source)
	reader, err := OpenReader(drain(t, source)[0], 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var batch Batch
	var got []string
	for {
		err := reader.Read(&batch, 1024, 64<<10)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range batch.Records {
			got = append(got, fmt.Sprintf("%s at line %d", record.Data, record.Line))
		}
		batch.Release()
	}
	want := []string{"1 at line 1", fmt.Sprintf("2 at line %d", 1<<20+2)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if size := cap(batch.buffer); size > 512<<10 {
		t.Errorf("the buffer grew to %d KB", size>>10)
	}
}

// TestReaderReuses: a released batch is filled without new memory.
func TestReaderReuses(t *testing.T) {
	source := open(t, chunktest.Temporary(t, chunktest.Numbered(20000)), cutOptions{})
	defer closeSource(t, source)
	reader, err := OpenReader(drain(t, source)[0], 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var batch Batch
	read := func() {
		if err := reader.Read(&batch, 100, 1<<20); err != nil {
			t.Fatal(err)
		}
		batch.Release()
	}
	read()
	if got := testing.AllocsPerRun(100, read); got > 2 {
		t.Errorf("%v allocations for a batch", got)
	}
}

// TestReaderDamaged changes the file between the scan and the read.
func TestReaderDamaged(t *testing.T) {
	data := chunktest.Numbered(1000)
	for name, damage := range map[string]func(path string) error{
		"removed":     os.Remove,
		"empty":       func(path string) error { return os.Truncate(path, 0) },
		"half":        func(path string) error { return os.Truncate(path, int64(len(data)/2)) },
		"a byte less": func(path string) error { return os.Truncate(path, int64(len(data)-1)) },
		"fewer lines": func(path string) error {
			return os.WriteFile(path, bytes.ReplaceAll(data, []byte("0}\n"), []byte("0} ")), 0o600)
		},
		"more lines": func(path string) error {
			return os.WriteFile(path, bytes.ReplaceAll(data, []byte(`{"id":`), []byte(`{"id"`+"\n")), 0o600)
		},
		"blank": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("\n"), len(data)), 0o600)
		},
		"one line": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), len(data)), 0o600)
		},
		"a folder": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		for _, maxRecord := range []int64{4, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, maxRecord), func(t *testing.T) {
				shrink(t, blockBytes, readBytes, 16)
				path := chunktest.Temporary(t, data)
				source := open(t, path, cutOptions{})
				defer closeSource(t, source)
				c := drain(t, source)[0]
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
				got, err := readChunk(c, readOptions{maxRecords: 10, maxBytes: 1 << 20, maxRecord: maxRecord})
				chunktest.WantKind(t, err, fault.Storage)
				if int64(len(got)) > c.Records {
					t.Errorf("%d records of a chunk of %d", len(got), c.Records)
				}
			})
		}
	}
}

// TestReaderShrinks: the file shrinks while it is being read.
func TestReaderShrinks(t *testing.T) {
	shrink(t, blockBytes, readBytes, 16)
	path := chunktest.Temporary(t, chunktest.Numbered(1000))
	source := open(t, path, cutOptions{})
	defer closeSource(t, source)
	reader, err := OpenReader(drain(t, source)[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var batch Batch
	if err := reader.Read(&batch, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	batch.Release()
	if err := os.Truncate(path, 50); err != nil {
		t.Fatal(err)
	}
	for range 3 { // and it stays an error
		chunktest.WantKind(t, reader.Read(&batch, 10, 1<<20), fault.Storage)
	}
}

func FuzzReader(f *testing.F) {
	for i, s := range chunktest.Nasty {
		f.Add([]byte(s), byte(1+i%5), byte(1+i%7), byte(i%11))
	}
	f.Add([]byte("a\n\n"+strings.Repeat("b", 300)+"\r\n \nc"), byte(3), byte(3), byte(9))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, smallest, maxRecords, maxRecord byte) {
		shrink(t, 1+int64(smallest), 1+int(smallest), 1+int(smallest))
		path := filepath.Join(dir, fmt.Sprintf("%d.jsonl", os.Getpid()))
		chunktest.Write(t, path, data)
		want, blank := chunktest.Records(data)
		for _, split := range []Split{SplitRecords, SplitBytes} {
			source := open(t, path, cutOptions{Chunks: 1 + int(maxRecords)%5, Split: split})
			var got []chunktest.Line
			for _, c := range drain(t, source) {
				some, err := readChunk(c, readOptions{maxRecords: 1 + int(maxRecords), maxBytes: 64, maxRecord: int64(maxRecord)})
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, some...)
			}
			if diff := cmp.Diff(want, got); diff != "" || source.Blank() != blank {
				t.Errorf("by %s: %d blank lines of %d; %s", split, source.Blank(), blank, diff)
			}
			closeSource(t, source)
		}
	})
}

// lender is an allocator that has memory only sometimes, overwrites what is returned, and
// counts what is in use.
type lender struct {
	r    *rand.Rand
	lent int
}

type loan struct {
	lender *lender
	data   []byte
}

func (l *lender) alloc(size int) Memory {
	if l.r.IntN(3) == 0 {
		return nil
	}
	l.lent++
	return &loan{l, make([]byte, size+l.r.IntN(100))}
}

func (l *loan) Bytes() []byte { return l.data }

func (l *loan) Free() {
	for i := range l.data {
		l.data[i] = 0xEE
	}
	l.lender.lent--
}

// TestReaderBorrows: with intermittent shared memory, the records are the same and all
// memory is freed.
func TestReaderBorrows(t *testing.T) {
	r := chunktest.Seeded(t)
	path := filepath.Join(t.TempDir(), "in.jsonl")
	for round := range 250 {
		data := chunktest.Input(r, 30)
		if round < len(chunktest.Nasty) {
			data = []byte(chunktest.Nasty[round])
		}
		chunktest.Write(t, path, data)
		shrink(t, 1+r.Int64N(64), 1+r.IntN(32), 1+r.IntN(64))
		source := open(t, path, cutOptions{Chunks: 1})
		want, _ := chunktest.Records(data)
		l := &lender{r: r}
		for _, c := range drain(t, source) {
			got := borrowAll(t, c, l, 1+r.IntN(8), 1+r.IntN(200), r.Int64N(80))
			if len(got) != len(want) {
				t.Fatalf("%q: %d records instead of %d", data, len(got), len(want))
			}
			for i := range got {
				if got[i] != string(want[i].Data) {
					t.Errorf("%q: record %d is %q", data, i, got[i])
				}
			}
		}
		closeSource(t, source)
		if l.lent != 0 {
			t.Fatalf("%q: %d were not freed", data, l.lent)
		}
	}
}

func borrowAll(t *testing.T, c chunk.Chunk, l *lender, maxRecords, maxBytes int, maxRecord int64) []string {
	t.Helper()
	reader, err := OpenReader(c, maxRecord)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	reader.AllocateWith(l.alloc)
	var got []string
	batches := []*Batch{{}, {}} // both are in use at the same time
	for i := 0; ; i++ {
		batch := batches[i%2]
		batch.Release()
		err := reader.Read(batch, maxRecords, maxBytes)
		if err == io.EOF {
			batches[(i+1)%2].Release()
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range batch.Records {
			got = append(got, string(record.Data))
		}
	}
}

// TestReaderReadsWhatABatchTakes: the first batch shows how much a batch takes, so later
// batches do not read the rest of the file each time.
func TestReaderReadsWhatABatchTakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl")
	chunktest.Write(t, path, []byte(strings.Repeat(`{"text":"0123456789"}`+"\n", 20_000)))
	source := open(t, path, cutOptions{Chunks: 1})
	defer closeSource(t, source)
	reader, err := OpenReader(drain(t, source)[0], math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var asked []int
	reader.AllocateWith(func(size int) Memory {
		asked = append(asked, size)
		return nil
	})
	for range 3 {
		if err := reader.Read(new(Batch), 100, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	used := 100 * len(`{"text":"0123456789"}`+"\n")
	if len(asked) != 3 || asked[1] > 2*used+minRead || asked[2] > 2*used+minRead {
		t.Errorf("room was asked for %v bytes, for batches of %d", asked, used)
	}
}
