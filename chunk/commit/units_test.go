package commit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
)

func format(t testing.TB, name string) encode.Format {
	t.Helper()
	f, err := encode.ByName(name)
	chunktest.Must(t, err)
	return f
}

// linesSegment has one record with these lines. It ends a planned chunk unless inner.
func (j *job) linesSegment(t testing.TB, first int64, lines string, inner bool) chunk.Segment {
	t.Helper()
	j.made++
	part := NewPart(PartOptions{
		Path:  filepath.Join(j.parts(), fmt.Sprintf("part-%d", j.made)),
		Chunk: chunk.Chunk{File: "in", First: first, Line: first + 1, Following: following(inner)},
	})
	chunktest.Must(t, part.Write(Outcome{Lines: []byte(lines)}))
	segment, err := part.Close(chunk.Chunk{File: "in", First: first + 1, Line: first + 2})
	chunktest.Must(t, err)
	return segment
}

// unitsOf returns the sizes of an output's units before encoding, as its journal has them.
func unitsOf(t testing.TB, journal *Journal) (sizes []int64) {
	t.Helper()
	entries, err := ReadJournal(journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	for _, e := range state.Encoded {
		for _, u := range e.Units {
			sizes = append(sizes, u.Raw)
		}
	}
	return sizes
}

// TestUnitBorders: units end with the line that makes them long enough, and with a planned
// chunk if they have a quarter of that.
func TestUnitBorders(t *testing.T) {
	line := strings.Repeat("x", 9) + "\n"
	for _, test := range []struct {
		name     string
		segments []int // lines of each; negative: ends inside a planned chunk
		want     []int64
	}{
		{"nothing", []int{0}, []int64{0}},
		{"one short chunk", []int{1}, []int64{10}},
		{"short chunks share a unit", []int{1, 1}, []int64{20}},
		{"a quarter ends a unit", []int{1, 1, 1, 1, 1}, []int64{30, 20}},
		{"a long chunk", []int{25}, []int64{100, 100, 50}},
		{"exactly two units", []int{20}, []int64{100, 100}},
		{"the border of a segment is none", []int{-7, -1, -9, 8}, []int64{100, 100, 50}},
		{"segments longer than units", []int{-25, 3}, []int64{100, 100, 80}},
		{"a chunk without lines", []int{4, 0, 0, 1}, []int64{40, 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newJob(t)
			options := Options{Path: j.out, WorkDir: j.work(), Format: format(t, "jsonl.zst"), UnitBytes: 100}
			var err error
			options.Journal, err = CreateJournal(filepath.Join(j.work(), "journal"))
			chunktest.Must(t, err)
			defer options.Journal.Close()
			o, err := Create(options)
			chunktest.Must(t, err)
			want := ""
			for i, n := range test.segments {
				lines := strings.Repeat(line, max(n, -n))
				want += lines
				chunktest.Must(t, o.Commit(j.linesSegment(t, int64(i), lines, n < 0)))
			}
			chunktest.Must(t, o.Finish())
			if got := unitsOf(t, options.Journal); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("units of %v, want %v", got, test.want)
			}
			data, err := os.ReadFile(j.out)
			chunktest.Must(t, err)
			if got := decoded(t, options.Format, data); string(got) != want {
				t.Errorf("%q instead of %q", got, want)
			}
			if sum, err := chunk.SumFile(t.Context(), j.out); err != nil || sum != o.ResultSum() {
				t.Errorf("the sum is %v, want %v: %v", o.ResultSum(), sum, err)
			}
		})
	}
}

// TestUnitsWithoutRoomInJournal: a durable point that fits into the journal covers no units
// whose own entry did not fit.
func TestUnitsWithoutRoomInJournal(t *testing.T) {
	const page = 4096
	j := newJob(t)
	disk := disktest.Mount(t, "8k")
	options := Options{Path: j.out, WorkDir: j.work(), Format: format(t, "jsonl.zst"), UnitBytes: 100}
	var err error
	options.Journal, err = CreateJournal(filepath.Join(disk, "journal"))
	chunktest.Must(t, err)
	chunktest.Must(t, os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, page), 0o600))
	o, err := Create(options)
	chunktest.Must(t, err)
	line := strings.Repeat("x", 99) + "\n"
	chunktest.Must(t, o.Commit(j.linesSegment(t, 0, line, false)))
	chunktest.Must(t, o.land(true))
	err = o.Commit(j.linesSegment(t, 1, strings.Repeat(line, 100), false)) // 100 units
	if err == nil {
		err = o.land(true)
	}
	if f := fault.As(err); f == nil || f.Kind != fault.Storage {
		t.Fatalf("%v, want no space", err)
	}
	o.Abandon()
	chunktest.Must(t, options.Journal.Close())
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	if err != nil || state.Durable.Next != 1 || state.Done() != 2 {
		t.Errorf("durable to record %d, %d records done, want 1 and 2: %v", state.Durable.Next, state.Done(), err)
	}
}

// TestLongUnit: a unit that is too long to be held in memory is the same.
func TestLongUnit(t *testing.T) {
	var files [2][]byte
	for i := range files {
		if i == 1 {
			held := heldUnit
			heldUnit = 500
			t.Cleanup(func() { heldUnit = held })
		}
		j := newJob(t)
		o, err := Create(Options{Path: j.out, WorkDir: j.work(), Format: format(t, "jsonl.gz"), UnitBytes: 100})
		chunktest.Must(t, err)
		for n, size := range []int{3, 4000, 5, 1000} {
			chunktest.Must(t, o.Commit(j.linesSegment(t, int64(n), strings.Repeat("x", size)+"\n", false)))
		}
		chunktest.Must(t, o.Finish())
		files[i], err = os.ReadFile(j.out)
		chunktest.Must(t, err)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("other bytes")
	}
}

// TestStreamedUnits: a reader of a pipe gets every planned chunk when it is complete.
func TestStreamedUnits(t *testing.T) {
	j := newJob(t)
	var out bytes.Buffer
	f := format(t, "jsonl.gz")
	o, err := Create(Options{Path: "-", Stdout: &out, WorkDir: j.work(), Format: f})
	chunktest.Must(t, err)
	for i := range int64(3) {
		chunktest.Must(t, o.Commit(j.linesSegment(t, i, fmt.Sprintf("%d\n", i), false)))
		<-o.Encoded()
		chunktest.Must(t, o.Land())
		if got := decoded(t, f, out.Bytes()); string(got) != "0\n1\n2\n"[:2*i+2] {
			t.Errorf("after chunk %d: %q", i, got)
		}
	}
	chunktest.Must(t, o.Finish())
	if left := chunktest.Files(t, j.parts()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDamagedPartIsNotEncoded: a part that changes before it is encoded is a fault, and a
// resume computes its records again.
func TestDamagedPartIsNotEncoded(t *testing.T) {
	j := newJob(t)
	options := Options{Path: j.out, WorkDir: j.work(), Format: format(t, "jsonl.zst")}
	var err error
	options.Journal, err = CreateJournal(filepath.Join(j.work(), "journal"))
	chunktest.Must(t, err)
	o, err := Create(options)
	chunktest.Must(t, err)
	segment := j.linesSegment(t, 0, "abc\n", false)
	chunktest.Write(t, filepath.Join(j.parts(), segment.Part+".out"), []byte("abd\n"))
	chunktest.Must(t, o.Commit(segment))
	err = o.Finish()
	chunktest.WantKind(t, err, fault.Storage)
	options.Journal.Close()
	if _, err := os.Stat(j.out); err == nil {
		t.Error("the output has its name")
	}
	var entries []Entry
	options.Journal, entries, err = OpenJournal(options.Journal.path)
	chunktest.Must(t, err)
	defer options.Journal.Close()
	state, err := Replay(entries)
	chunktest.Must(t, err)
	chunktest.Must(t, state.Verify(j.parts(), options.Journal))
	if len(state.Segments) > 0 || state.Complete {
		t.Errorf("the damaged part counts: %+v", state)
	}
	o, err = Resume(options, state)
	chunktest.Must(t, err)
	chunktest.Must(t, o.Commit(j.linesSegment(t, 0, "abc\n", false)))
	chunktest.Must(t, o.Finish())
	data, err := os.ReadFile(j.out)
	chunktest.Must(t, err)
	if got := decoded(t, options.Format, data); string(got) != "abc\n" {
		t.Errorf("%q", got)
	}
}

// TestEncodedDamageIsFound: a flipped bit in any durable file is found, and the output is
// cut back to the mark before it.
func TestEncodedDamageIsFound(t *testing.T) {
	j := newJob(t)
	options := Options{Path: j.out, Errors: j.err, WorkDir: j.work(), Format: format(t, "jsonl.gz"), UnitBytes: 20}
	var err error
	options.Journal, err = CreateJournal(filepath.Join(j.work(), "journal"))
	chunktest.Must(t, err)
	o, err := Create(options)
	chunktest.Must(t, err)
	for first := int64(0); first < 60; first += 6 {
		s := j.segment(t, first, 6, true)
		s.Inner = first%12 == 0 // two segments are a chunk
		chunktest.Must(t, o.Commit(s))
	}
	o.Abandon()
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	if len(state.Output) != 10 {
		t.Fatalf("%d segments are durable", len(state.Output))
	}
	for _, files := range held(state, options) {
		for _, file := range files {
			data, err := os.ReadFile(file.path)
			chunktest.Must(t, err)
			before, left := 0, make([]int, len(data))
			for i := range data {
				putByte(t, file.path, i, data[i]^1<<(i%8))
				good, whole, err := state.CheckOutput(t.Context(), options)
				if err != nil || whole || good >= 10 || good%2 != 0 || good < before {
					t.Fatalf("%s, byte %d: %d segments are good: %v", file.path, i, good, err)
				}
				before, left[i] = good, good
				putByte(t, file.path, i, data[i])
			}
			if before != 8 {
				t.Errorf("%s: the last damage leaves %d segments", file.path, before)
			}
			for i := len(data) - 1; i >= 0; i-- {
				chunktest.Must(t, os.Truncate(file.path, int64(i)))
				if good, whole, err := state.CheckSizes(options); err != nil || whole || good != left[i] {
					t.Fatalf("%s, cut at %d: %d segments are good, not %d: %v", file.path, i, good, left[i], err)
				}
			}
			chunktest.Write(t, file.path, data)
		}
	}
}

// following returns how many records of the source's chunk follow one that is only a part of it.
func following(inner bool) int64 {
	if inner {
		return 1
	}
	return 0
}

// TestOpenUnitIsSynced: a durable point inside a unit syncs its parts, once, and records nothing.
func TestOpenUnitIsSynced(t *testing.T) {
	j := newJob(t)
	options := Options{Path: j.out, WorkDir: j.work(), Format: format(t, "jsonl.zst"), Journal: j.journal(t), DurableEvery: 1}
	o, err := Create(options)
	chunktest.Must(t, err)
	defer o.Abandon()
	for i := range int64(3) {
		chunktest.Must(t, o.Commit(j.linesSegment(t, i, "a line\n", false)))
		chunktest.Must(t, o.awaitPoint())
		if since := o.units.since; since.synced != int(i)+1 || len(since.segments) != int(i)+1 {
			t.Errorf("%d of %d parts are synced", since.synced, len(since.segments))
		}
	}
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	for _, e := range entries {
		if e.Durable != nil {
			t.Errorf("durable up to record %d", e.Durable.Next)
		}
	}
}

// TestEncodeMemory: on no machine do the units of a format that are encoded ahead take more than 1 GB,
// each of which holds its pages, or a buffer that grows; and no more are encoded ahead than allowed, not
// even those that waited for the layout.
func TestEncodeMemory(t *testing.T) {
	for _, name := range encode.Names() {
		f := format(t, name)
		for processors := range 1024 {
			if n := encodeAhead(f.UnitBytes, processors); n < 1 || int64(n)*2*f.UnitBytes > 1<<30 {
				t.Fatalf("%s: %d units of %d bytes with %d processors", name, n, f.UnitBytes, processors)
			}
		}
	}
	j := newRowJob(t, "parquet", 0)
	j.options.Layout = columns.NewShared(j.spec, nil)
	o, err := Create(j.options)
	chunktest.Must(t, err)
	o.units.most = 2
	for i := range int64(20) { // more than a unit each
		chunktest.Must(t, o.Commit(j.segment(t, i*30, 30, false)))
	}
	if len(o.units.waiting) < 20 || o.units.ahead > 0 {
		t.Errorf("%d units wait for the layout, %d do not", len(o.units.waiting), o.units.ahead)
	}
	j.options.Layout.Fix(j.layout)
	for o.units.start(); len(o.units.queue) > 0; chunktest.Must(t, o.Land()) {
		ahead := 0
		for _, s := range o.units.queue {
			if s.unit != nil && s.unit.ahead {
				ahead++
			}
		}
		if ahead > 2 || o.units.ahead != ahead {
			t.Fatalf("%d units are encoded ahead, %d are counted", ahead, o.units.ahead)
		}
	}
	chunktest.Must(t, o.Finish())
}
