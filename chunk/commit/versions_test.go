package commit

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// TestVersion1Resumes: a job that a gpurun with journal version 1 began is resumed, from any
// of its lines, and its journal keeps that version.
func TestVersion1Resumes(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "journal-1.golden"))
	chunktest.Must(t, err)
	lines := strings.SplitAfter(string(golden), "\n")
	for n := 3; n < len(lines)-1; n++ { // with its first two segments
		j := newJob(t)
		path := filepath.Join(j.work(), "journal")
		chunktest.Write(t, path, []byte(strings.Join(lines[:n], "")))
		chunktest.Write(t, filepath.Join(j.work(), "output.partial"), []byte("{\"id\":0}\n"))
		chunktest.Write(t, filepath.Join(j.work(), PartialFailures), nil)
		journal, entries, err := OpenJournal(path)
		chunktest.Must(t, err)
		state, err := Replay(entries)
		chunktest.Must(t, err)
		options := Options{Path: j.out, WorkDir: j.work(), Journal: journal}
		good, whole, err := state.CheckOutput(t.Context(), options)
		if err != nil || good != len(state.Output) || !whole {
			t.Fatalf("%d lines: %d of %d segments are good: %v", n, good, len(state.Output), err)
		}
		chunktest.Must(t, state.Verify(j.parts(), journal)) // the parts are lost
		o, err := Resume(options, state)
		chunktest.Must(t, err)
		for first := state.Durable.Next; first < 4; first++ {
			chunktest.Must(t, o.Commit(j.linesSegment(t, first, fmt.Sprintf("{\"id\":%d}\n", first), first == 0)))
		}
		chunktest.Must(t, o.Finish())
		journal.Close()
		if got := contents(t, j.dir)["out.jsonl"]; got != "{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n" {
			t.Errorf("%d lines: %q", n, got)
		}
		if got := contents(t, j.work())["journal"]; !strings.HasPrefix(got, strings.Join(lines[:n], "")) {
			t.Errorf("%d lines: the journal was changed: %s", n, got)
		}
	}
}

// TestJournalVersions: plain results are journaled as in version 1, encoded ones in version
// 2, and other versions are refused.
func TestJournalVersions(t *testing.T) {
	for name, version := range map[string]string{"jsonl": "1", "jsonl.gz": "2", "jsonl.zst": "2"} {
		path := filepath.Join(t.TempDir(), "journal")
		journal, err := CreateJournal(path, Options{Format: format(t, name)})
		chunktest.Must(t, err)
		journal.Close()
		data, err := os.ReadFile(path)
		chunktest.Must(t, err)
		if string(data) != "gpurun-journal "+version+"\n" {
			t.Errorf("%s: %q", name, data)
		}
	}
	for _, version := range []string{"0", "3", "01", "", "1.0"} {
		_, err := readJournal(strings.NewReader("gpurun-journal "+version+"\n"), "journal")
		chunktest.WantKind(t, err, fault.Conflict)
	}
}

// TestSkippedEntries: a reader of version 2 skips what it may skip, and nothing else.
func TestSkippedEntries(t *testing.T) {
	line := func(payload string) string { return fmt.Sprintf("%s %s\n", chunk.Checksum([]byte(payload)), payload) }
	drop := line(`{"drop":{"first":7,"part":"a"}}`)
	for _, test := range []struct {
		name, journal string
		entries       int
	}{
		{"version 2", "gpurun-journal 2\n" + line(`{"x-note":{"a":1}}`) + drop, 2},
		{"version 1", "gpurun-journal 1\n" + line(`{"x-note":{"a":1}}`) + drop, 0},
		{"unknown", "gpurun-journal 2\n" + line(`{"note":{"a":1}}`) + drop, 0},
		{"two members", "gpurun-journal 2\n" + line(`{"x-note":1,"x-more":2}`) + drop, 0},
		{"encoded in version 1", "gpurun-journal 1\n" + line(`{"encoded":{"first":0,"next":0,"units":[]}}`) + drop, 0},
	} {
		c, err := readJournal(strings.NewReader(test.journal), "journal")
		chunktest.Must(t, err)
		if len(c.entries) != test.entries {
			t.Errorf("%s: %d entries", test.name, len(c.entries))
		}
		if _, err := Replay(c.entries); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestContradictoryUnits: units that do not match the durable output are refused.
func TestContradictoryUnits(t *testing.T) {
	segment := func(first int64) Entry {
		return Entry{Segment: &chunk.Segment{
			First: first, Part: fmt.Sprint(first), Next: chunk.Place{Offset: first + 10},
			Files: [chunk.PartFiles]chunk.FileSum{{Bytes: 50}}, Tally: chunk.Tally{Counts: chunk.Counts{Records: 10, Succeeded: 10}},
		}}
	}
	units := func(first, next, bytes int64) Entry {
		return Entry{Encoded: &Encoded{First: first, Next: next, Units: []Unit{{Raw: 50, Bytes: bytes}}}}
	}
	durable := func(next, bytes int64) Entry {
		return Entry{Durable: &Durable{
			Next: next, Place: chunk.Place{Offset: next}, Sizes: [chunk.PartFiles]int64{bytes},
			Tally: chunk.Tally{Counts: chunk.Counts{Records: next, Succeeded: next}},
		}}
	}
	both := []Entry{segment(0), segment(10)}
	for _, test := range []struct {
		name    string
		entries []Entry
		bytes   int64 // durable; -1: refused
	}{
		{"one mark", []Entry{units(0, 20, 30), durable(20, 30)}, 30},
		{"two marks", []Entry{units(0, 10, 30), units(10, 20, 5), durable(20, 35)}, 35},
		{"encoded again", []Entry{units(0, 10, 30), units(10, 20, 5), units(0, 10, 31), units(10, 20, 6), durable(20, 37)}, 37},
		{"two points", []Entry{units(0, 10, 30), durable(10, 30), units(10, 20, 5), durable(20, 35), durable(20, 35)}, 35},
		{"an empty unit behind", []Entry{units(0, 20, 30), units(20, 20, 9), durable(20, 30)}, 30},
		{"an empty unit, then covered", []Entry{units(0, 20, 30), units(20, 20, 9), durable(20, 30), durable(20, 39)}, 39},
		{"a gap", []Entry{units(10, 20, 30), durable(20, 30)}, -1},
		{"not all", []Entry{units(0, 10, 30), durable(20, 30)}, -1},
		{"too far", []Entry{units(0, 20, 30), durable(10, 30)}, -1},
		{"another size", []Entry{units(0, 20, 30), durable(20, 31)}, -1},
		{"plain sizes", []Entry{units(0, 20, 30), durable(20, 100)}, -1},
		{"an empty unit without bytes", []Entry{units(0, 20, 0), durable(20, 0)}, -1},
		{"backward", []Entry{units(10, 0, 5)}, -1},
	} {
		state, err := Replay(append(both[:2:2], test.entries...))
		if test.bytes < 0 {
			if fault.KindOf(err) != fault.Conflict {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		chunktest.Must(t, err)
		if got := state.ResultSum().Bytes; got != test.bytes {
			t.Errorf("%s: %d bytes", test.name, got)
		}
		again, err := Replay(state.entries())
		if diff := cmp.Diff(state.Encoded, again.Encoded); diff != "" || err != nil {
			t.Errorf("%s: written again: %v %s", test.name, err, diff)
		}
	}
}

// TestEncodedFormatDocument: the document describes every field of version 2.
func TestEncodedFormatDocument(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "journal-format.md"))
	chunktest.Must(t, err)
	for _, of := range []reflect.Type{reflect.TypeFor[Encoded](), reflect.TypeFor[Unit](), reflect.TypeFor[ManifestPart](), reflect.TypeFor[Manifest]()} {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(document), "`"+name+"`") && !strings.Contains(string(document), "[]."+name+"`") {
				t.Errorf("field %s of %s is not described", name, of)
			}
		}
	}
}
