package commit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// contents returns the files of a folder by name, without folders.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range chunktest.Files(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	return all
}

// sums returns the expected sums of a part's files.
func sums(files map[string]string, part string) (all [chunk.PartFiles]chunk.FileSum) {
	for i, suffix := range suffixes[:chunk.PartFiles] {
		data := []byte(files[part+suffix])
		all[i] = chunk.FileSum{Bytes: int64(len(data)), CRC: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))}
	}
	return all
}

func TestPart(t *testing.T) {
	const (
		marked   = `{"a":1,"_error":{"kind":"record","message":"bad","step":"embed","line":9}}` + "\n"
		passed   = `{"_error":1}` + "\n"
		failures = `{"at":%16d,"size":%d,"record":5,"line":9,"file":"in.jsonl","offset":70,"length":7,"crc32c":"cff7d56a","kind":"record","message":"bad","step":"embed","detail":"trace","device":"GPU 0"}` + "\n" +
			`{"at":%16d,"size":%d,"record":6,"line":10,"file":"in.jsonl","offset":80,"length":12,"crc32c":"12630585","kind":"upstream","message":"the record already has an _error in the input","code":"earlier-error","step":"embed","device":"GPU 0"}` + "\n"
	)
	inPlace := fmt.Sprintf(failures, 4, len(marked), 4+len(marked), len(passed))
	apart := fmt.Sprintf(failures, 4, 0, 4, 0)
	for name, c := range map[string]struct {
		apart bool
		lines int64
		want  map[string]string
	}{
		"in place": {false, 4, map[string]string{"p.out": "1\n2\n" + marked + passed, "p.failures": inPlace}},
		"apart":    {true, 2, map[string]string{"p.out": "1\n2\n", "p.err": marked + passed, "p.failures": apart}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			part := NewPart(PartOptions{
				Path: filepath.Join(dir, "p"), Chunk: chunk.Chunk{File: "in.jsonl", Offset: 50, Length: 100, First: 3, Records: 6, Line: 7},
				ErrorsApart: c.apart, Step: "embed", Device: "GPU 0",
			})
			chunktest.Must(t, part.Write(Outcome{Lines: []byte("1\n2\n")}))
			chunktest.Must(t, part.Write(Outcome{Dropped: true}))
			chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: []byte(`{"a":1}`), Index: 5, Line: 9, Offset: 70}, Fault: fault.New(fault.Record, "bad").WithDetail("trace")}))
			chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: []byte(`{"_error":1}`), Index: 6, Line: 10, Offset: 80}, Fault: fault.New(fault.Upstream, "")}))
			segment, err := part.Close(chunk.Chunk{File: "in.jsonl", Offset: 93, Length: 57, First: 7, Records: 2, Line: 11})
			chunktest.Must(t, err)
			want := chunk.Segment{
				First: 3, Start: chunk.Place{Offset: 50, Line: 7}, Next: chunk.Place{Offset: 93, Line: 11}, Part: "p", Files: sums(c.want, "p"),
				Lines: c.lines, Inner: true,
				Tally: chunk.Tally{Counts: chunk.Counts{Records: 4, Succeeded: 1, Failed: 2, Dropped: 1}, Kinds: map[string]chunk.KindStats{
					"record":   {Count: 1, Example: "bad", Detail: "trace", Line: 9},
					"upstream": {Count: 1, Example: "the record already has an _error in the input", Line: 10},
				}, Causes: map[string]chunk.KindStats{
					"record: bad": {Count: 1, Example: "bad", Line: 9},
					"upstream: the record already has an _error in the input": {Count: 1, Example: "the record already has an _error in the input", Code: string(fault.EarlierError), Line: 10},
				}},
			}
			if diff := cmp.Diff(want, segment); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(want.Tally.Counts, part.Counts()); diff != "" {
				t.Error(diff)
			}
			chunktest.Must(t, checkPart(dir, segment))
			if diff := cmp.Diff(c.want, contents(t, dir)); diff != "" {
				t.Error(diff)
			}
			RemovePart(filepath.Join(dir, segment.Part))
			if got := chunktest.Files(t, dir); len(got) > 0 {
				t.Errorf("files left: %v", got)
			}
		})
	}
}

// TestPartRuns: however many records are written at once, and however large
// they are together, the part is the same as if they were written one by one.
func TestPartRuns(t *testing.T) {
	dir := t.TempDir()
	apiece, atOnce := NewPart(PartOptions{Path: filepath.Join(dir, "p")}), NewPart(PartOptions{Path: filepath.Join(dir, "q")})
	for i, n := range []int{1, 3, 200, 2, 5000, 700, 1} {
		record := []byte(fmt.Sprintf(`{"a":%d%s}`, i, strings.Repeat(" ", 100)) + "\n")
		for range n {
			chunktest.Must(t, apiece.Write(Outcome{Lines: record}))
		}
		chunktest.Must(t, atOnce.Write(Outcome{Lines: bytes.Repeat(record, n), Run: n}))
		for _, part := range []*Part{apiece, atOnce} { // between them, in order
			chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: []byte(`{"b":1}`), Index: 5, Line: 9}, Fault: fault.New(fault.Record, "bad")}))
		}
	}
	want, err := apiece.Close(chunk.Chunk{})
	chunktest.Must(t, err)
	got, err := atOnce.Close(chunk.Chunk{})
	chunktest.Must(t, err)
	chunktest.Must(t, checkPart(dir, got))
	want.Part = got.Part
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPartEmpty: a part without lines has no files.
func TestPartEmpty(t *testing.T) {
	dir := t.TempDir()
	part := NewPart(PartOptions{Path: filepath.Join(dir, "p")})
	chunktest.Must(t, part.Write(Outcome{Dropped: true}))
	if _, err := part.Close(chunk.Chunk{}); err != nil {
		t.Error(err)
	}
	if got := chunktest.Files(t, dir); len(got) > 0 {
		t.Errorf("files made: %v", got)
	}
}

// TestLongMessagesAreCut: however long a kernel's message is, the journal, the output and
// failures.jsonl stay small and say how much is missing.
func TestLongMessagesAreCut(t *testing.T) {
	dir := t.TempDir()
	part := NewPart(PartOptions{Path: filepath.Join(dir, "p")})
	message, detail := strings.Repeat("é", 1<<20), strings.Repeat("x", 1<<20)+"the end"
	chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: []byte("{}"), Line: 1}, Fault: fault.New(fault.Record, "%s", message).WithDetail(detail)}))
	segment, err := part.Close(chunk.Chunk{})
	chunktest.Must(t, err)
	kind := segment.Tally.Kinds["record"]
	if n := len(kind.Example); n > 2<<10+10 || !strings.HasPrefix(kind.Example, "éé") || !utf8.ValidString(kind.Example) {
		t.Errorf("example of %d bytes: %.40s…", n, kind.Example)
	}
	if n := len(kind.Detail); n > 8<<10+10 || !strings.HasSuffix(kind.Detail, "the end") {
		t.Errorf("detail of %d bytes", n)
	}
	var f record.Failure
	chunktest.Must(t, json.Unmarshal([]byte(contents(t, dir)["p.failures"]), &f))
	if len(f.Message) > fault.MaxMessage+64 || !strings.HasSuffix(f.Message, " bytes cut)") || !strings.HasPrefix(f.Message, "éé") {
		t.Errorf("message of %d bytes", len(f.Message))
	}
	if len(f.Detail) > fault.MaxDetail+64 || !strings.HasPrefix(f.Detail, "(") || !strings.HasSuffix(f.Detail, "the end") {
		t.Errorf("detail of %d bytes", len(f.Detail))
	}
	if out := contents(t, dir)["p.out"]; len(out) > fault.MaxMessage+256 || !strings.Contains(out, f.Message) {
		t.Errorf("marked record of %d bytes", len(out))
	}
}

func TestPartDiscard(t *testing.T) {
	dir := t.TempDir()
	part := NewPart(PartOptions{Path: filepath.Join(dir, "p"), ErrorsApart: true})
	chunktest.Must(t, part.Write(Outcome{Lines: []byte("1\n")}))
	chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: []byte("x")}, Fault: fault.New(fault.Record, "bad")}))
	part.Discard()
	part.Discard()
	if got := chunktest.Files(t, dir); len(got) > 0 {
		t.Errorf("files left: %v", got)
	}
}

// TestPartStorageFails: a write failure is reported by one of the calls, with its kind, and
// no files remain.
func TestPartStorageFails(t *testing.T) {
	for name, c := range map[string]struct {
		dir   func(t *testing.T) string
		cause error
	}{
		"no folder": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, os.ErrNotExist},
		"disk full": {chunktest.TinyDisk, syscall.ENOSPC},
	} {
		for _, size := range []int{100, 100 << 10, 1 << 20} { // found by Close, or by a write
			if name == "disk full" && size < 64<<10 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				dir := c.dir(t)
				part := NewPart(PartOptions{Path: filepath.Join(dir, "p"), ErrorsApart: true})
				data := []byte(`{"a":"` + strings.Repeat("x", size) + `"}`)
				err := part.Write(Outcome{Lines: append(data, '\n')})
				if err == nil {
					err = part.Write(Outcome{Record: input.Record{Data: data}, Fault: fault.New(fault.Record, "bad")})
				}
				if err == nil {
					_, err = part.Close(chunk.Chunk{})
				}
				chunktest.WantKind(t, err, fault.Storage)
				if !errors.Is(err, c.cause) {
					t.Errorf("error %v does not lead to %v", err, c.cause)
				}
				part.Discard()
				if got := chunktest.Files(t, dir); len(got) > 0 {
					t.Errorf("files left: %v", got)
				}
			})
		}
	}
}

// TestFailureNames: programs read failures.jsonl, so its names are fixed.
func TestFailureNames(t *testing.T) {
	line, err := record.Failure{At: 7, Kind: fault.OOM, Message: "m"}.AppendLine(nil)
	chunktest.Must(t, err)
	const want = `{"at":               7,"size":0,"record":0,"line":0,"file":"","offset":0,"length":0,"crc32c":"00000000","kind":"oom","message":"m"}` + "\n"
	if string(line) != want {
		t.Errorf("%s, want %s", line, want)
	}
}

// TestPartsShareBuffers: a part does not allocate a new buffer.
func TestPartsShareBuffers(t *testing.T) {
	dir := t.TempDir()
	const parts = 40
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range parts {
		part := NewPart(PartOptions{Path: filepath.Join(dir, fmt.Sprint(i))})
		chunktest.Must(t, part.Write(Outcome{Lines: []byte("{}\n")}))
		_, err := part.Close(chunk.Chunk{})
		chunktest.Must(t, err)
	}
	runtime.ReadMemStats(&after)
	// Some are lost: to garbage collection, and on purpose to the race detector.
	if used := after.TotalAlloc - before.TotalAlloc; used > parts*copyBytes/2 {
		t.Errorf("%d parts took %d bytes", parts, used)
	}
}
