// Package chunktest has inputs that break line splitters, a reference implementation of
// splitting, and small checks, for the tests of the packages below chunk.
package chunktest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// byteOrderMark may precede an input.
var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

// Line is a line of an input as the naive splitter sees it, and what a test keeps of a
// Record.
type Line struct {
	Data   string
	Index  int64 // of a record
	Line   int64
	Offset int64
	Blank  bool
}

// Split is the reference implementation: it splits an input in the simplest way.
func Split(data []byte) []Line {
	offset := int64(0)
	if bytes.HasPrefix(data, byteOrderMark) {
		offset = int64(len(byteOrderMark))
	}
	pieces := bytes.Split(data[offset:], []byte("\n"))
	if len(pieces[len(pieces)-1]) == 0 {
		pieces = pieces[:len(pieces)-1] // no line follows the last newline
	}
	var all []Line
	index := int64(0)
	for i, piece := range pieces {
		l := Line{Line: int64(i + 1), Offset: offset, Index: index}
		l.Data = string(bytes.TrimSuffix(piece, []byte("\r")))
		if l.Blank = len(bytes.Trim(piece, " \t\r")) == 0; !l.Blank {
			index++
		}
		offset += int64(len(piece)) + 1
		all = append(all, l)
	}
	return all
}

// Records is Split without the blank lines, and how many of those there were.
func Records(data []byte) (records []Line, blank int64) {
	for _, l := range Split(data) {
		if l.Blank {
			blank++
		} else {
			records = append(records, l)
		}
	}
	return records, blank
}

// Nasty are inputs that have broken line splitters before.
var Nasty = []string{
	"", "\n", "\n\n\n", " ", "\t\r", "\r\n", " \r\n\t\n", "a", "a\n", "a\r\n", "a\r", "\r", "a\r\r\n", "\ra\n",
	"a\nb", "a\nb\n", "\na", "\n\na\n\n", "a\n\n\nb\n", "a\n ", "a\n \n", "a\r\nb\r\n", "a\r\n\r\nb",
	"\xef\xbb\xbf", "\xef\xbb\xbfa\n", "\xef\xbb\xbf\n", "\xef\xbb\xbf\xef\xbb\xbfa\n", "a\n\xef\xbb\xbfb\n", "\xef\xbb", "\xef\n", "\xef\xbb\n\xbf",
	"\x00\n\x00\x00", "\xff\xfe\na", "\v\n\f\n", "\u2028\n\u00a0\n", "{}\n[]\n1\n", "a b\n c \n",
}

// Input returns a random input of up to n lines.
func Input(r *rand.Rand, n int) []byte {
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

// Numbered returns n records with the numbers from 0.
func Numbered(n int) []byte {
	var b []byte
	for i := range n {
		b = fmt.Appendf(b, `{"id":%d}`+"\n", i)
	}
	return b
}

// Seeded returns a random source, and logs its seed if the test fails.
func Seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// Write writes a file and returns its path.
func Write(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Temporary returns a file with data in a new folder.
func Temporary(t testing.TB, data []byte) string {
	t.Helper()
	return Write(t, filepath.Join(t.TempDir(), "in.jsonl"), data)
}

// WantKind fails the test unless err is a fault of this kind, in one line.
func WantKind(t testing.TB, err error, kind fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind {
		t.Errorf("error %v is of kind %v, want %v", err, fault.KindOf(err), kind)
	}
	if err != nil && bytes.ContainsRune([]byte(err.Error()), '\n') {
		t.Errorf("error is more than one line: %q", err)
	}
}

// Files returns the names in a folder.
func Files(t testing.TB, dir string) []string {
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

// TinyDisk returns a folder on its own file system of 64 KB.
func TinyDisk(t *testing.T) string { return disktest.Mount(t, "64k") }

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
