package decode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

func gzipped(t testing.TB, pieces ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, piece := range pieces {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, piece); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func zstandard(t testing.TB, pieces ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, piece := range pieces {
		w, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, piece); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// writtenFile opens a file with content.
func writtenFile(t testing.TB, data []byte) format.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return File(opened, "file", int64(len(data)))
}

// decodeFile detects and decodes a file.
func decodeFile(t testing.TB, data []byte) (string, Kind, error) {
	t.Helper()
	file := writtenFile(t, data)
	kind, err := Detect(file, "", nil)
	if err != nil {
		return "", kind, err
	}
	lines, err := Open(t.Context(), file, kind, format.Options{Threads: 2})
	if err != nil {
		return "", kind, err
	}
	defer lines.Close()
	got, err := io.ReadAll(lines)
	return string(got), kind, err
}

func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":%d,\"text\":%q}\n", i, strings.Repeat("x", i%50))
	}
	return b.String()
}

func TestDecode(t *testing.T) {
	text := manyLines(5000)
	for name, test := range map[string]struct {
		data []byte
		kind string
		want string
	}{
		"plain":                {[]byte(text), "jsonl", text},
		"empty":                {nil, "jsonl", ""},
		"gzip":                 {gzipped(t, text), "gzip-compressed jsonl", text},
		"gzip members":         {gzipped(t, text[:1000], "", text[1000:]), "gzip-compressed jsonl", text},
		"gzip empty":           {gzipped(t, ""), "gzip-compressed jsonl", ""},
		"gzip padded":          {append(gzipped(t, text[:1000], text[1000:]), make([]byte, 700)...), "gzip-compressed jsonl", text},
		"zstd":                 {zstandard(t, text), "zstd-compressed jsonl", text},
		"zstd frames":          {zstandard(t, text[:1000], "", text[1000:]), "zstd-compressed jsonl", text},
		"zstd skippable first": {append([]byte("\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"), zstandard(t, text)...), "zstd-compressed jsonl", text},
	} {
		t.Run(name, func(t *testing.T) {
			got, kind, err := decodeFile(t, test.data)
			if err != nil || got != test.want || kind.String() != test.kind {
				t.Errorf("%s, %d bytes, %v", kind, len(got), err)
			}
			if kind.Plain() != (test.kind == "jsonl") {
				t.Errorf("plain: %t", kind.Plain())
			}
			for cut, r := range map[string]io.Reader{"whole": bytes.NewReader(test.data), "bytes": iotest.OneByteReader(bytes.NewReader(test.data))} {
				lines := NewStream(r, "standard input", "", nil).Lines(t.Context(), format.Options{Threads: 1})
				if got, err := io.ReadAll(lines); err != nil || string(got) != test.want {
					t.Errorf("streamed, %s: %d bytes, %v", cut, len(got), err)
				}
				lines.Close()
			}
		})
	}
}

// TestDecodeDamaged: damage is an error, and what is decoded before it is right.
func TestDecodeDamaged(t *testing.T) {
	text := manyLines(3000)
	for name, whole := range map[string][]byte{"gzip": gzipped(t, text[:2000], text[2000:]), "zstd": zstandard(t, text[:2000], text[2000:])} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 200 {
				data := bytes.Clone(whole)
				if at := 4 + r.IntN(len(data)-4); i%2 == 0 {
					data = data[:at]
				} else {
					data[at] ^= byte(1 + r.IntN(255))
				}
				got, _, err := decodeFile(t, data)
				switch {
				case err == nil && i%2 == 0 && got == text[:2000]: // cut between two members
				case err == nil && got != text: // headers have bytes that mean nothing
					t.Fatalf("damage was not noticed: %d bytes of %d", len(got), len(text))
				case err != nil && i%2 == 0 && !strings.HasPrefix(text, got):
					t.Fatalf("wrong bytes before the error %v", err)
				case err != nil && !strings.Contains(err.Error(), name):
					t.Fatalf("error without the format: %v", err)
				}
			}
		})
	}
}

// TestDecodeTail: what follows the last member is not taken for a truncated one.
func TestDecodeTail(t *testing.T) {
	text := manyLines(100)
	for name, tail := range map[string]string{"short": "x", "junk": "some text", "after zeros": "\x00\x00" + string(gzipped(t, text))} {
		got, _, err := decodeFile(t, append(gzipped(t, text), tail...))
		if err == nil || !strings.Contains(err.Error(), "no gzip header where a member should begin") || got != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for name, lines := range map[string]string{"arrays": "[{\"a\":1}]\n[{\"a\":2}]\n", "numbers": "[1,2]\n"} {
		if got, kind, err := decodeFile(t, []byte(lines)); err != nil || got != lines || !kind.Plain() {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestDecodeWindow: a frame whose window would need much memory is refused.
func TestDecodeWindow(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(256<<20))
	if err != nil {
		t.Fatal(err)
	}
	chunk := []byte(manyLines(20000))
	for range 2 + (1<<20)/len(chunk) { // more than fits a single segment of unknown size
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := decodeFile(t, b.Bytes()); err == nil || !strings.Contains(err.Error(), "window") {
		t.Errorf("error %v", err)
	}
}

func TestDetectRefuses(t *testing.T) {
	for name, data := range map[string][]byte{
		"xz": []byte("\xfd7zXZ\x00rest"), "array in gzip": gzipped(t, "[\n  {\"a\": 1},\n  {\"a\": 2}\n]\n"),
		"array in a line": []byte("[{\"a\": 1}, {\"a\": 2}]\n"), "long array in a line": []byte("[ {\"a\": 1}" + strings.Repeat(", {\"a\": 2}", 10000) + "]"),
		"UTF-16": []byte("\xff\xfe{\x00}\x00\n\x00"),
	} {
		_, _, err := decodeFile(t, data)
		chunktest.WantKind(t, err, fault.Usage)
		if err == nil || !strings.Contains(err.Error(), "file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Detect(writtenFile(t, nil), "xml", nil); err == nil || !strings.Contains(err.Error(), "jsonl") {
		t.Errorf("an unknown format: %v", err)
	}
	kind, err := Detect(writtenFile(t, []byte("a,b\n1,2\n3,4\n")), "jsonl", nil)
	if err != nil || !kind.Plain() {
		t.Errorf("what the user says: %v, %v", kind, err)
	}
}

func TestStreamFails(t *testing.T) {
	lines := NewStream(iotest.ErrReader(io.ErrClosedPipe), "standard input", "", nil).Lines(context.Background(), format.Options{Threads: 1})
	if _, err := io.ReadAll(lines); err == nil {
		t.Error("no error")
	}
	if err := lines.Close(); err != nil {
		t.Error(err)
	}
}

// TestTables: tables are recognized by content, or by name if they are short.
func TestTables(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"x", "a,b\n1,2\n3,4\n", "csv"},
		{"x", "a\tb\n1\t2\n3\t4\n", "tsv"},
		{"x", "a,b\n1,2\n", "jsonl"},
		{"x.csv", "a,b\n1,2\n", "csv"},
		{"x.CSV.gz", "a\n1\n", "csv"},
		{"x.tsv", "a\n1\n", "tsv"},
		{"x.csv", "{\"a\":1}\n", "jsonl"},
		{"x.csv", "", "jsonl"},
		{"x.parquet", "{\"a\":1}\n", "jsonl"},
		{"x", "PAR1", "parquet"},
		{"x.parquet", "PAQ1\x15\x04\x15\x10", "parquet"},
		{"x.arrow", "ARSOW1\x00\x00", "arrow"},
		{"x.feather", "\x01RROW1\x00\x00", "arrow"},
		{"x.arrows", "\x7f\xff\xff\xff\x10\x00\x00\x00", "arrow"},
		{"x.arrow", "{RROW1\x00\x00", "arrow"},
		{"x.lines", "\x7f\xff\xff\xff\x10\x00\x00\x00", "jsonl"},
	} {
		f, err := formatOf([]byte(c.content), true, "", "input", c.name)
		if err != nil || f.Name != c.want {
			t.Errorf("%s %q: %s, %v", c.name, c.content, f.Name, err)
		}
	}
}

// TestStreamedTables: a table in a stream is recognized by its first lines, however they
// arrive. Records are not waited for.
func TestStreamedTables(t *testing.T) {
	rows := func(n int) string {
		var b strings.Builder
		b.WriteString("id,text\n")
		for i := range n {
			fmt.Fprintf(&b, "%d,\"two\nlines\"\n", i)
		}
		return b.String()
	}
	ragged := "id,text\n" + strings.Repeat("1,a\n", 20) + strings.Repeat("1\n", 20)
	for name, test := range map[string]struct {
		content string
		rows    bool
		first   string
	}{
		"csv":                 {rows(500), true, `{"id":"0","text":"two\nlines"}`},
		"short csv":           {rows(2), true, `{"id":"0","text":"two\nlines"}`},
		"no line feed":        {"id,text\n1,a\n2,b", true, `{"id":"1","text":"a"}`},
		"tabs":                {"\ufeffid\ttext\n1\ta\n2\tb\n", true, `{"id":"1","text":"a"}`},
		"ragged further on":   {ragged, true, `{"id":"1","text":"a"}`},
		"broken first record": {"a,b\n" + manyLines(20), false, "a,b"},
		"records":             {manyLines(20), false, `{"id":0,"text":""}`},
		"numbers":             {"1\n2\n3\n", false, "1"},
	} {
		want := ""
		for cut, r := range map[string]io.Reader{
			"whole": strings.NewReader(test.content), "bytes": iotest.OneByteReader(strings.NewReader(test.content)), "halves": iotest.HalfReader(strings.NewReader(test.content)),
		} {
			lines := NewStream(r, "standard input", "", nil).Lines(t.Context(), format.Options{Threads: 1})
			got, err := io.ReadAll(lines)
			if want == "" {
				want = string(got)
			}
			if first, _, _ := strings.Cut(string(got), "\n"); err != nil || lines.CountsRows() != test.rows || first != test.first || string(got) != want {
				t.Errorf("%s, %s: rows %t, %v, %.60q", name, cut, lines.CountsRows(), err, got)
			}
		}
	}
	for _, record := range []string{"{}\n", "{\"a\":1}\n", "17\n"} {
		reader, writer := io.Pipe()
		go func() { _, _ = io.WriteString(writer, record) }() // and no more
		lines := NewStream(reader, "standard input", "", nil).Lines(t.Context(), format.Options{Threads: 1})
		got := make([]byte, 100)
		if n, err := lines.Read(got); err != nil || string(got[:n]) != record {
			t.Errorf("%q, %v", got[:n], err)
		}
		writer.Close()
	}
}

// TestStreamedArrays: a stream that is one array in one line is refused, however it arrives, when
// it ends or gets long. Lines that are arrays are records.
func TestStreamedArrays(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		isArray bool
	}{
		"line":          {"[{\"a\": 1}, {\"a\": 2}]\n", true},
		"blank lines":   {"\n[{\"a\": 1}]\n\n \n", true},
		"no line feed":  {"[{\"a\": 1}]", true},
		"several lines": {"[\n{\"a\": 1},\n{\"a\": 2}\n]\n", true},
		"records":       {"[{\"a\": 1}]\n[{\"a\": 2}]\n", false},
		"numbers":       {"[1, 2]\n", false},
	} {
		for cut, r := range map[string]io.Reader{
			"whole": strings.NewReader(test.content), "bytes": iotest.OneByteReader(strings.NewReader(test.content)), "gzip": bytes.NewReader(gzipped(t, test.content)),
		} {
			got, err := io.ReadAll(NewStream(r, "standard input", "", nil).Lines(t.Context(), format.Options{Threads: 1}))
			if refused := err != nil && strings.Contains(err.Error(), "standard input is one JSON array"); refused != test.isArray || !refused && string(got) != test.content {
				t.Errorf("%s, %s: %q, %v", name, cut, got, err)
			}
		}
	}
	reader, writer := io.Pipe()
	go func() { _, _ = io.WriteString(writer, "[{\"a\": 1}"+strings.Repeat(", {\"a\": 2}", format.SniffBytes)) }() // and no end
	if _, err := NewStream(reader, "standard input", "", nil).Lines(t.Context(), format.Options{Threads: 1}).Read(make([]byte, 100)); err == nil {
		t.Error("a long array is not refused before its end")
	}
	reader.Close()
}
