package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// opened is a decoder that counts how many of its kind are open.
type opened struct {
	io.Reader
	open *atomic.Int64
}

func (o *opened) Close() error { o.open.Add(-1); return nil }

// decoded returns a section whose lines come from a decoder. open and most count decoders.
func decoded(name string, data []byte, open, most *atomic.Int64) Section {
	return fileSection(name, func(context.Context) (format.Lines, error) {
		now := open.Add(1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		return format.Lines{ReadCloser: &opened{bytes.NewReader(data), open}, First: 1}, nil
	})
}

// fileSection returns the section of one file that is decoded.
func fileSection(name string, open func(context.Context) (format.Lines, error)) Section {
	return Section{Files: []SectionFile{{Name: name, Open: open}}}
}

func openSequence(t testing.TB, sections []Section, options Options) *Source {
	t.Helper()
	if options.Dir == "" {
		options.Dir = filepath.Join(t.TempDir(), "spool")
	}
	source, err := Open(sections, options)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// named is a line with the name of its file.
type named struct {
	Source string
	chunktest.Line
}

// readNamed reads all records of a sequence.
func readNamed(t testing.TB, source *Source) (all []named, chunks []chunk.Chunk) {
	t.Helper()
	for {
		c, err := source.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all, chunks
		}
		if err != nil {
			t.Fatal(err)
		}
		lines, err := readChunk(c, plain)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			from := c.Origin(line.Line)
			line.Offset, line.Line = 0, from.Line
			all = append(all, named{from.File, line})
		}
		chunks = append(chunks, c)
		source.Release(c)
	}
}

// bundled returns the sections with some of those that are decoded bundled.
func bundled(r *rand.Rand, sections []Section) (all []Section) {
	for i, s := range sections {
		last := len(all) - 1
		if s.Path != "" || last < 0 || all[last].Path != "" || r.IntN(3) == 0 {
			all = append(all, s)
			continue
		}
		s.Files[0].Number = i
		all[last] = Section{Files: slices.Concat(all[last].Files, s.Files)}
	}
	return all
}

// TestSequence: the records of several files follow one another, file by file,
// whatever the files are and however they are read.
func TestSequence(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	for range 60 {
		var sections []Section
		var want []named
		var open, most atomic.Int64
		dir := t.TempDir()
		for i := range r.IntN(9) {
			data := chunktest.Input(r, 40)
			name := fmt.Sprintf("file-%d", i)
			records, _ := chunktest.Records(data)
			for _, line := range records {
				line.Offset, line.Index = 0, int64(len(want))
				want = append(want, named{name, line})
			}
			if r.IntN(2) == 0 {
				path := chunktest.Write(t, filepath.Join(dir, name), data)
				sections = append(sections, Section{Files: []SectionFile{{Name: name}}, Path: path})
			} else {
				sections = append(sections, decoded(name, data, &open, &most))
			}
		}
		source := openSequence(t, bundled(r, sections), Options{
			ChunkRecords: 1 + r.Int64N(9), ChunkBytes: 1 + r.Int64N(100), Parallel: 1 + r.IntN(4), Ahead: 1 + r.IntN(3),
		})
		got, _ := readNamed(t, source)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("records differ: %s", diff)
		}
		if total, known := source.Total(); total != int64(len(want)) || !known {
			t.Errorf("total %d, %t, want %d", total, known, len(want))
		}
		closeSource(t, source)
		if open.Load() != 0 {
			t.Errorf("%d decoders are still open", open.Load())
		}
	}
}

// TestSequenceLimits: an offset and a limit count across files.
func TestSequenceLimits(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	for range 60 {
		var sections []Section
		var all []named
		var open, most atomic.Int64
		for i := range 1 + r.IntN(6) {
			data := chunktest.Input(r, 12)
			name := fmt.Sprintf("file-%d", i)
			records, _ := chunktest.Records(data)
			for _, line := range records {
				line.Offset, line.Index = 0, int64(len(all))
				all = append(all, named{name, line})
			}
			sections = append(sections, decoded(name, data, &open, &most))
		}
		limits := Limits{Offset: r.Int64N(20), Limit: r.Int64N(20)}
		first := min(int(limits.Offset), len(all))
		want := all[first:]
		if limits.Limit > 0 {
			want = want[:min(int(limits.Limit), len(want))]
		}
		source := openSequence(t, sections, Options{Limits: limits, ChunkRecords: 1 + r.Int64N(9)})
		got, _ := readNamed(t, source)
		if len(got) != len(want) || len(want) > 0 && cmp.Diff(want, got) != "" {
			t.Fatalf("%+v: records differ: %s", limits, cmp.Diff(want, got))
		}
		if total, known := source.Total(); total != int64(len(want)) || !known {
			t.Errorf("total %d, %t, want %d", total, known, len(want))
		}
		closeSource(t, source)
	}
}

// TestSequenceIsBounded: 2,000 files need few open files and a bounded spool, and nothing
// remains of them.
func TestSequenceIsBounded(t *testing.T) {
	noLeaks(t)
	const files = 2_000
	var open, most atomic.Int64
	sections := make([]Section, files)
	for i := range sections {
		sections[i] = decoded(fmt.Sprint(i), []byte("1\n2\n"), &open, &most)
	}
	dir := filepath.Join(t.TempDir(), "spool")
	source := openSequence(t, sections, Options{Dir: dir, ChunkRecords: 10, Parallel: 3})
	n := 0
	for {
		c, err := source.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n%200 == 0 {
			if spooled := len(chunktest.Files(t, dir)); spooled > sectionsAhead+3 {
				t.Errorf("%d spool files", spooled)
			}
		}
		n++
		source.Release(c)
	}
	if n != files || most.Load() > 3 {
		t.Errorf("%d chunks; at most %d files were open, want 3", n, most.Load())
	}
	s := source
	if len(s.spool.files) > 0 || s.spool.bytes != 0 {
		t.Errorf("left: %d files, %d bytes", len(s.spool.files), s.spool.bytes)
	}
	closeSource(t, source)
}

// logIn opens the log of a folder.
func logIn(t testing.TB, dir string) *Log {
	t.Helper()
	log, err := OpenLog(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// takeSome takes some chunks and closes the source, as an interrupted job does.
func takeSome(t testing.TB, source *Source, n int) (chunks []chunk.Chunk) {
	t.Helper()
	for range n {
		c, err := source.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, c)
	}
	closeSource(t, source)
	return chunks
}

// firsts returns where chunks begin and how long they are.
func firsts(chunks []chunk.Chunk) (all [][3]int64) {
	for _, c := range chunks {
		all = append(all, [3]int64{c.First, c.Records, c.Length})
	}
	return all
}

// TestSequenceResumes: a sequence that is read again is split as before, even with other
// settings, and what is done is not copied.
func TestSequenceResumes(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	for range 60 {
		dir := t.TempDir()
		var open, most atomic.Int64
		var sections []Section
		for i := range 1 + r.IntN(5) {
			name, data := fmt.Sprintf("file-%d", i), chunktest.Input(r, 40)
			if r.IntN(3) == 0 {
				sections = append(sections, Section{Files: []SectionFile{{Name: name}}, Path: chunktest.Write(t, filepath.Join(dir, name), data)})
				continue
			}
			sections = append(sections, decoded(name, data, &open, &most))
		}
		sections = bundled(r, sections)
		options := Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 1 + r.Int64N(9), ChunkBytes: 64}
		_, want := readNamed(t, openSequence(t, sections, options))

		options.Log = logIn(t, dir)
		before := takeSome(t, openSequence(t, sections, options), r.IntN(len(want)+2))
		done := before[:r.IntN(len(before)+1)]
		end := int64(0)
		if len(done) > 0 {
			end = done[len(done)-1].First + done[len(done)-1].Records
		}
		options.Log = logIn(t, dir)
		options.Earlier = holds(func(first, records int64) bool { return first+records <= end })
		for i := range sections {
			sections[i].Same = r.IntN(2) == 0
		}
		source := openSequence(t, sections, options)
		chunks := drain(t, source)
		if diff := cmp.Diff(firsts(want), firsts(chunks)); diff != "" {
			t.Fatalf("split differently: %s", diff)
		}
		for _, c := range chunks {
			if spooled := strings.HasPrefix(c.File, options.Dir); spooled && c.First < end {
				t.Errorf("record %d is done, but was copied", c.First)
			}
		}
		closeSource(t, source)
	}
}

// TestSequenceRefusesOtherBytes: what is read again must be what was read before.
func TestSequenceRefusesOtherBytes(t *testing.T) {
	noLeaks(t)
	data := ""
	for i := range 40 {
		data += fmt.Sprintf("{\"a\":%d}\n", i%10)
	}
	for name, now := range map[string]string{
		"byte changed":  data[:100] + "x" + data[101:],
		"line missing":  data[8:],
		"shorter":       data[:96],
		"ends in line":  data[:100],
		"empty":         "",
		"line inserted": data[:16] + "{}\n" + data[16:],
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var open, most atomic.Int64
			options := Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 5, Log: logIn(t, dir)}
			takeSome(t, openSequence(t, []Section{decoded("f", []byte(data), &open, &most)}, options), 6)
			for _, end := range []int64{30, 0} {
				options.Log = logIn(t, dir)
				options.Earlier = holds(func(first, records int64) bool { return first+records <= end })
				source := openSequence(t, []Section{decoded("f", []byte(now), &open, &most)}, options)
				var err error
				for err == nil {
					_, err = source.Next(t.Context())
				}
				chunktest.WantKind(t, err, fault.Conflict)
				closeSource(t, source)
			}
		})
	}
}

// TestSequenceGrows: a stream whose writer was killed seems to end. The next run goes on
// where it ended, unless the record that was cut off is already in the output.
func TestSequenceGrows(t *testing.T) {
	noLeaks(t)
	data := strings.Repeat("{\"a\":1}\n", 40)
	for _, cut := range []int{8 * 12, 8*12 + 3, 8 * 15} {
		for _, end := range []int64{0, 7, 10} {
			dir := t.TempDir()
			var open, most atomic.Int64
			options := Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 5, Log: logIn(t, dir)}
			takeSome(t, openSequence(t, []Section{decoded("", []byte(data[:cut]), &open, &most)}, options), 99)
			options.Log = logIn(t, dir)
			options.Earlier = holds(func(first, records int64) bool { return first+records <= end })
			source := openSequence(t, []Section{decoded("", []byte(data), &open, &most)}, options)
			var records int64
			for _, c := range drain(t, source) {
				if c.First%5 != 0 {
					t.Errorf("cut at %d, done to %d: a chunk at record %d", cut, end, c.First)
				}
				records += c.Records
			}
			if records != 40 {
				t.Errorf("cut at %d, done to %d: %d records", cut, end, records)
			}
			closeSource(t, source)
		}
	}
}

// broken is a reader that fails after some data.
func broken(data string) Section {
	return fileSection("bad", func(context.Context) (format.Lines, error) {
		r := io.MultiReader(strings.NewReader(data), &failOnce{err: errors.New("truncated")})
		return format.Lines{ReadCloser: io.NopCloser(r), First: 1}, nil
	})
}

// TestSequenceDamage: a damaged file stops the job, or only the rest of it is skipped.
func TestSequenceDamage(t *testing.T) {
	noLeaks(t)
	var open, most atomic.Int64
	good := decoded("good", []byte("1\n2\n3\n"), &open, &most)
	for _, data := range []string{"", "4\n", "4\n5\n6", "4\n5\n", "4\n" + strings.Repeat("5", 1<<20+100), strings.Repeat("5", 1<<20+100)} {
		sections := []Section{good, broken(data), good}
		source := openSequence(t, sections, Options{ChunkRecords: 10})
		var err error
		for err == nil {
			_, err = source.Next(t.Context())
		}
		chunktest.WantKind(t, err, fault.Storage)
		if !strings.Contains(err.Error(), "bad") {
			t.Errorf("the error does not name the file: %v", err)
		}
		closeSource(t, source)

		var skipped []Damage
		source = openSequence(t, sections, Options{ChunkRecords: 10, SkipBad: true, Skipped: func(d Damage) { skipped = append(skipped, d) }})
		got, _ := readNamed(t, source)
		whole := strings.Count(data, "\n")
		if len(got) != 6+whole || len(skipped) != 1 || skipped[0].Name != "bad" || skipped[0].Line != int64(whole+1) {
			t.Errorf("%.20q: %d records, skipped %+v", data, len(got), skipped)
		}
		closeSource(t, source)

		// In a bundle, the files after a damaged one are read too.
		files := []SectionFile{{Name: "good", Open: good.Files[0].Open}, {Name: "bad", Number: 1, Open: sections[1].Files[0].Open}, {Name: "after", Open: good.Files[0].Open}}
		dir := t.TempDir()
		log := logIn(t, dir)
		source = openSequence(t, []Section{{Files: files}}, Options{ChunkRecords: 10, SkipBad: true, Log: log})
		got, _ = readNamed(t, source)
		if last := got[len(got)-1]; len(got) != 6+whole || last.Source != "after" || last.Line.Line != 3 {
			t.Errorf("%.20q: %d records, the last is %+v", data, len(got), last)
		}
		closeSource(t, source)
		if log = logIn(t, dir); log.Bad(0) || !log.Bad(1) {
			t.Errorf("%.20q: the log does not tell which file was damaged", data)
		}
	}
}

// TestSequenceEstimate: the number of records is estimated by the bytes read so far.
func TestSequenceEstimate(t *testing.T) {
	noLeaks(t)
	data := chunktest.Numbered(1000)
	var open, most atomic.Int64
	var read atomic.Int64
	section := decoded("file", data, &open, &most)
	section.Size, section.Read = int64(len(data)), read.Load
	source := openSequence(t, []Section{section, section}, Options{ChunkRecords: 100, Parallel: 1, Ahead: 1})
	defer closeSource(t, source)
	estimated := source
	if n := estimated.Estimate(); n != 0 {
		t.Errorf("%d records before any byte is read", n)
	}
	if _, err := source.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	read.Store(int64(len(data)) / 10)
	if n := estimated.Estimate(); n < 2000 || n > 6000 { // two or three chunks are read
		t.Errorf("about %d records of 2000", n)
	}
}

// TestSequenceKeeps: a kept spool replaces a stream that was read to its end.
func TestSequenceKeeps(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	dir := t.TempDir()
	data := []byte(strings.Repeat("{\"a\":1}\n", 100))
	options := Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 7, Keep: true, Ahead: 1, Log: logIn(t, dir)}
	rows := func(r io.Reader) []Section {
		return []Section{{Once: true, Files: []SectionFile{{Open: func(context.Context) (format.Lines, error) {
			return format.Lines{ReadCloser: io.NopCloser(r), First: 1, Rows: func() bool { return true }}, nil
		}}}}}
	}
	source, err := Open(rows(bytes.NewReader(data)), options)
	if err != nil {
		t.Fatal(err)
	}
	chunks := drain(t, source)
	end := chunks[r.IntN(len(chunks))].First
	for _, c := range chunks {
		source.Release(c) // which is not enough
	}
	source.Durable(end - 1) // the last of these chunks is not durable,
	source.Durable(end)     // and now it is
	if n := len(chunktest.Files(t, options.Dir)); n != len(chunks)-int(end/7) {
		t.Errorf("%d of %d spool files are kept, although %d records are durable", n, len(chunks), end)
	}
	closeSource(t, source)
	options.Log = logIn(t, dir)
	options.Earlier = holds(func(first, records int64) bool { return first+records <= end })
	source, err = Open(rows(failing{errors.New("the stream is gone")}), options)
	if err != nil {
		t.Fatal(err)
	}
	var records int64
	for _, c := range drain(t, source) {
		if !c.Rows {
			t.Errorf("the lines of chunk %d are no longer rows", c.First)
		}
		if c.First >= end {
			lines, err := readChunk(c, plain)
			if err != nil {
				t.Fatal(err)
			}
			records += int64(len(lines))
		}
	}
	if records != 100-end {
		t.Errorf("%d records remain, want %d", records, 100-end)
	}
	closeSource(t, source)
}

// failing is a reader without data.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestChunkLogDamaged: damage costs the rest of the log, never a wrong line.
func TestChunkLogDamaged(t *testing.T) {
	dir := t.TempDir()
	log := logIn(t, dir)
	for i := range 5 {
		if err := log.add(loggedChunk{Index: i, First: int64(i), Records: 1, FileSum: chunk.FileSum{Bytes: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	path := filepath.Join(dir, "log")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		data := bytes.Clone(whole)
		at := rand.IntN(len(data))
		if rand.IntN(2) == 0 {
			data = data[:at]
		} else {
			data[at] ^= 1 << rand.IntN(8)
		}
		chunktest.Write(t, path, data)
		again := logIn(t, dir).section(0).chunks
		if len(again) > 5 {
			t.Fatalf("%d chunks", len(again))
		}
		for i, c := range again {
			if c.First != int64(i) || c.Records != 1 {
				t.Fatalf("chunk %d is %+v", i, c)
			}
		}
	}
}

// TestSectionOf: each record belongs to the section that it was read from, also if sections
// are empty, and if the limit leaves sections unread.
func TestSectionOf(t *testing.T) {
	noLeaks(t)
	var open, most atomic.Int64
	texts := []string{"", "1\n2\n", "\n", "3\n4\n5\n", "6\n", ""}
	for limit := range int64(8) {
		var sections []Section
		for i, text := range texts {
			sections = append(sections, decoded(fmt.Sprint(i), []byte(text), &open, &most))
		}
		source := openSequence(t, sections, Options{ChunkRecords: 2, Limits: Limits{Limit: limit}})
		for _, c := range drain(t, source) {
			for record := c.First; record < c.First+c.Records; record++ {
				if got := source.SectionOf(record); fmt.Sprint(got) != c.Source {
					t.Errorf("limit %d: record %d is in section %d, want %s", limit, record, got, c.Source)
				}
			}
		}
		closeSource(t, source)
	}
}
