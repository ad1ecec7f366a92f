package chunk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// line is a line of an input as the naive splitter sees it, and what a test keeps of a
// Record.
type line struct {
	Data   string
	Index  int64 // of a record
	Line   int64
	Offset int64
	Blank  bool
}

// split is the reference implementation: it splits an input in the simplest way.
func split(data []byte) []line {
	offset := int64(0)
	if bytes.HasPrefix(data, byteOrderMark) {
		offset = int64(len(byteOrderMark))
	}
	pieces := bytes.Split(data[offset:], []byte("\n"))
	if len(pieces[len(pieces)-1]) == 0 {
		pieces = pieces[:len(pieces)-1] // no line follows the last newline
	}
	var all []line
	index := int64(0)
	for i, piece := range pieces {
		l := line{Line: int64(i + 1), Offset: offset, Index: index}
		l.Data = string(bytes.TrimSuffix(piece, []byte("\r")))
		if l.Blank = len(bytes.Trim(piece, " \t\r")) == 0; !l.Blank {
			index++
		}
		offset += int64(len(piece)) + 1
		all = append(all, l)
	}
	return all
}

// records is split without the blank lines, and how many of those there were.
func records(data []byte) (records []line, blank int64) {
	for _, l := range split(data) {
		if l.Blank {
			blank++
		} else {
			records = append(records, l)
		}
	}
	return records, blank
}

// nasty are inputs that have broken line splitters before.
var nasty = []string{
	"", "\n", "\n\n\n", " ", "\t\r", "\r\n", " \r\n\t\n", "a", "a\n", "a\r\n", "a\r", "\r", "a\r\r\n", "\ra\n",
	"a\nb", "a\nb\n", "\na", "\n\na\n\n", "a\n\n\nb\n", "a\n ", "a\n \n", "a\r\nb\r\n", "a\r\n\r\nb",
	"\xef\xbb\xbf", "\xef\xbb\xbfa\n", "\xef\xbb\xbf\n", "\xef\xbb\xbf\xef\xbb\xbfa\n", "a\n\xef\xbb\xbfb\n", "\xef\xbb", "\xef\n", "\xef\xbb\n\xbf",
	"\x00\n\x00\x00", "\xff\xfe\na", "\v\n\f\n", "\u2028\n\u00a0\n", "{}\n[]\n1\n", "a b\n c \n",
}

// input returns a random input of up to n lines.
func input(r *rand.Rand, n int) []byte {
	var b []byte
	if r.IntN(4) == 0 {
		b = append(b, byteOrderMark...)
	}
	blanks, crlf := r.IntN(4), r.IntN(3) // of 3: how often
	longest := 1 + r.IntN(60)
	for range r.IntN(n + 1) {
		if r.IntN(3) < blanks-r.IntN(2) {
			for range r.IntN(1 + r.IntN(20)) {
				b = append(b, " \t\r"[r.IntN(3)])
			}
		} else {
			for range 1 + r.IntN(longest) {
				b = append(b, "ab{}\" \t\r\x00\xff\xc3\xa9"[r.IntN(12)])
			}
		}
		if r.IntN(3) < crlf {
			b = append(b, '\r')
		}
		b = append(b, '\n')
	}
	if len(b) > 0 && r.IntN(2) == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// shrink makes blocks and reads so small that their borders fall everywhere.
func shrink(t testing.TB, block int64, read, smallest int) {
	b, r, m := blockBytes, readBytes, minRead
	t.Cleanup(func() { blockBytes, readBytes, minRead = b, r, m })
	blockBytes, readBytes, minRead = block, read, smallest
}

func seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func write(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// temporary returns a file with data in a new folder.
func temporary(t testing.TB, data []byte) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "in.jsonl"), data)
}

func open(t testing.TB, path string, options CutOptions) Source {
	t.Helper()
	source, err := OpenFile(t.Context(), path, options)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// drain takes all chunks.
func drain(t testing.TB, source Source) []Chunk {
	t.Helper()
	var all []Chunk
	for {
		c, err := source.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
}

// readOptions are the arguments of a reader.
type readOptions struct {
	maxRecords, maxBytes int
	maxRecord            int64
}

var plain = readOptions{maxRecords: 100, maxBytes: 1 << 20, maxRecord: 16 << 20}

// read reads a chunk to its end.
func readChunk(c Chunk, o readOptions) ([]line, error) {
	reader, err := OpenReader(c, o.maxRecord)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var all []line
	var batch Batch
	for {
		err := reader.Read(&batch, o.maxRecords, o.maxBytes)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, lines(&batch)...)
		batch.Release()
	}
}

func lines(b *Batch) []line {
	var all []line
	for _, r := range b.Records {
		all = append(all, line{Data: string(r.Data), Index: r.Index, Line: r.Line, Offset: r.Offset})
	}
	return all
}

// readAll reads chunks one after another.
func readAll(t testing.TB, chunks []Chunk) []line {
	t.Helper()
	var all []line
	for _, c := range chunks {
		got, err := readChunk(c, plain)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func wantKind(t testing.TB, err error, kind fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind {
		t.Errorf("error %v is of kind %v, want %v", err, fault.KindOf(err), kind)
	}
	if err != nil && bytes.ContainsRune([]byte(err.Error()), '\n') {
		t.Errorf("error is more than one line: %q", err)
	}
}

func closeSource(t testing.TB, source Source) {
	t.Helper()
	if err := source.Close(); err != nil {
		t.Error(err)
	}
}

// noLeaks fails the test if it leaks a goroutine.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// files returns the names in a folder.
func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func canceled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// tinyDisk returns a folder on its own file system of 64 KB.
func tinyDisk(t *testing.T) string { return disktest.Mount(t, "64k") }
