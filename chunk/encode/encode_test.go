package encode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/gpurun/gpurun/internal/fault"
)

func lines(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":%d,\"text\":%q,\"value\":%g}\n", i, strings.Repeat("word ", r.IntN(20)), r.Float64())
	}
	return b.Bytes()
}

func codecs() map[string]Codec {
	all := make(map[string]Codec)
	for _, f := range formats {
		if f.Codec != nil {
			all[f.Name] = f.Codec
		}
	}
	return all
}

func encoded(t testing.TB, c Codec, unit []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := c.Encode(&out, bytes.NewReader(unit), int64(len(unit))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(c Codec, data []byte) ([]byte, error) {
	in, err := c.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// TestUnitsJoin: frames one after another decode to all lines; an empty unit is valid.
func TestUnitsJoin(t *testing.T) {
	for name, c := range codecs() {
		units := [][]byte{lines(1000), nil, lines(1), lines(40000)}
		var file, want []byte
		for _, u := range units {
			file, want = append(file, encoded(t, c, u)...), append(want, u...)
		}
		got, err := decode(c, file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes instead of %d: %v", name, len(got), len(want), err)
		}
		if empty, err := decode(c, encoded(t, c, nil)); err != nil || len(empty) > 0 {
			t.Errorf("%s: an empty file: %q, %v", name, empty, err)
		}
	}
}

// TestSameBytes: a unit has the same bytes whatever encoded before, however it is read, and
// whoever encodes at the same time.
func TestSameBytes(t *testing.T) {
	for name, c := range codecs() {
		unit := lines(3000)
		want := encoded(t, c, unit)
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				encoded(t, c, lines(100*i))
				if !bytes.Equal(encoded(t, c, unit), want) {
					t.Errorf("%s: other bytes in goroutine %d", name, i)
				}
			})
		}
		group.Wait()
		for how, r := range map[string]io.Reader{"halves": iotest.HalfReader(bytes.NewReader(unit)), "bytes": iotest.OneByteReader(bytes.NewReader(unit))} {
			var out bytes.Buffer
			if err := c.Encode(&out, r, int64(len(unit))); err != nil || !bytes.Equal(out.Bytes(), want) {
				t.Errorf("%s: read in %s: other bytes, %v", name, how, err)
			}
		}
	}
}

// TestDamage: whatever happens to a file, its decoder never returns other lines without an
// error.
func TestDamage(t *testing.T) {
	for name, c := range codecs() {
		want := lines(300)
		file := append(encoded(t, c, want[:len(want)/2]), encoded(t, c, want[len(want)/2:])...)
		first := len(encoded(t, c, want[:len(want)/2]))
		for at := 0; at < len(file); at += 37 {
			flipped := bytes.Clone(file)
			flipped[at] ^= 4
			if got, err := decode(c, flipped); err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s: a flipped bit in byte %d goes unnoticed", name, at)
			}
			if _, err := decode(c, file[:at]); err == nil && at != 0 && at != first {
				t.Errorf("%s: truncation to %d bytes goes unnoticed", name, at)
			}
		}
	}
}

// TestFailedWriteAndRead: errors reach the caller, and the encoder is usable afterwards.
func TestFailedWriteAndRead(t *testing.T) {
	for name, c := range codecs() {
		unit, full := lines(5000), errors.New("full")
		want := encoded(t, c, unit)
		for range 3 {
			if err := c.Encode(iotest.TruncateWriter(io.Discard, 1<<30), iotest.ErrReader(full), 100); !errors.Is(err, full) {
				t.Errorf("%s: a failed read: %v", name, err)
			}
			if err := c.Encode(failingWriter{full}, bytes.NewReader(unit), int64(len(unit))); !errors.Is(err, full) {
				t.Errorf("%s: a failed write: %v", name, err)
			}
			if !bytes.Equal(encoded(t, c, unit), want) {
				t.Errorf("%s: other bytes after a failure", name)
			}
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestChoose(t *testing.T) {
	for _, one := range []struct{ path, chosen, want string }{
		{"out.jsonl", "", "jsonl"}, {"out", "", "jsonl"}, {"out.json", "", "jsonl"}, {"out.ndjson", "", "jsonl"}, {"out/", "", "jsonl"},
		{"out.jsonl.gz", "", "jsonl.gz"}, {"OUT.JSONL.GZ", "", "jsonl.gz"}, {"out.gz", "", "jsonl.gz"}, {"a.b/out.json.zst", "", "jsonl.zst"},
		{"out/", "jsonl.zst", "jsonl.zst"}, {"out.jsonl.zst/", "", "jsonl.zst"}, {"out", "jsonl.gz", "jsonl.gz"}, {"out.data", "jsonl.gz", "jsonl.gz"},
		{"out.jsonl.gz", "jsonl.gz", "jsonl.gz"}, {"out.jsonl", "jsonl", "jsonl"},
		{"out.jsonl", "jsonl.gz", ""}, {"out.jsonl.gz", "jsonl", ""}, {"out.jsonl.gz", "jsonl.zst", ""}, {"out", "zip", ""},
		{"out.csv", "", ""}, {"out.csv.gz", "", ""}, {"out.tar.gz", "", ""}, {"out.parquet", "", "parquet"}, {"out.parquet/", "", "parquet"}, {"OUT.PQ", "", "parquet"},
		{"out/", "parquet", "parquet"}, {"out.data", "parquet", "parquet"}, {"out.parquet", "jsonl", ""}, {"out.jsonl", "parquet", ""}, {"out.parquet.gz", "", ""}, {"out.arrow", "", "arrow"}, {"out.feather", "", "arrow"}, {"out.arrows", "", ""}, {"out.arrow", "parquet", ""},
		{"out.xlsx", "", ""}, {"out.json.bz2", "", ""}, {"out.jsonl.gz.zst", "", ""}, {"out.csv", "jsonl", ""}, {"out.tgz", "", ""},
	} {
		f, err := Choose(one.path, one.chosen)
		switch {
		case one.want == "" && fault.KindOf(err) != fault.Usage:
			t.Errorf("%s as %q: %v", one.path, one.chosen, err)
		case one.want == "":
			if strings.HasSuffix(one.path, ".csv") && one.chosen == "" && !strings.Contains(err.Error(), ".jsonl, .jsonl.gz, .jsonl.zst") {
				t.Errorf("%s: %v does not list the formats", one.path, err)
			}
		case err != nil || f.Name != one.want:
			t.Errorf("%s as %q: %s, %v", one.path, one.chosen, f.Name, err)
		}
	}
}
