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

// TestOtherVersionsAreRefused: a journal of any version but this one is not read.
func TestOtherVersionsAreRefused(t *testing.T) {
	for _, version := range []string{"0", "2", "01", "", "1.0"} {
		_, err := readJournal(strings.NewReader("gpurun-journal "+version+"\n"), "journal")
		chunktest.WantKind(t, err, fault.Conflict)
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

// TestEncodedFormatDocument: the document describes every field of units and parts.
func TestEncodedFormatDocument(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "internals", "journal-format.md"))
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
