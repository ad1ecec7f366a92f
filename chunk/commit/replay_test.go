package commit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

func TestReplay(t *testing.T) {
	entries := story()
	for n, want := range []struct {
		next  int64
		parts []string
		done  int64
	}{
		{}, {0, []string{"a"}, 10}, {0, []string{"a", "b"}, 15}, {10, []string{"b"}, 15}, {10, nil, 10},
		{10, []string{"c"}, 20}, {10, []string{"c", "d"}, 26}, {20, []string{"d"}, 26}, {20, []string{"d", "e"}, 30},
	} {
		s, err := Replay(entries[:n])
		chunktest.Must(t, err)
		var parts []string
		for _, segment := range s.Segments {
			parts = append(parts, segment.Part)
		}
		if s.Durable.Next != want.next || !slices.Equal(parts, want.parts) || s.Done() != want.done || s.Complete {
			t.Errorf("after %d entries: next %d, parts %v, %d done, complete %v, want %+v", n, s.Durable.Next, parts, s.Done(), s.Complete, want)
		}
	}
}

// TestReplayRefuses: contradictory entries are damage. Each case changes a consistent
// story.
func TestReplayRefuses(t *testing.T) {
	segment := func(e []Entry, i int, change func(*chunk.Segment)) []Entry {
		changed := *e[i].Segment
		change(&changed)
		e[i].Segment = &changed
		return e
	}
	durable := func(e []Entry, i int, change func(*Durable)) []Entry {
		changed := *e[i].Durable
		change(&changed)
		e[i].Durable = &changed
		return e
	}
	for name, damage := range map[string]func(e []Entry) []Entry{
		"no records":        func(e []Entry) []Entry { return segment(e, 0, func(s *chunk.Segment) { s.Tally.Records = 0 }) },
		"fewer than none":   func(e []Entry) []Entry { return segment(e, 0, func(s *chunk.Segment) { s.Tally.Records = -10 }) },
		"before the first":  func(e []Entry) []Entry { return segment(e, 0, func(s *chunk.Segment) { s.First = -1 }) },
		"too many to count": func(e []Entry) []Entry { return segment(e, 1, func(s *chunk.Segment) { s.Tally.Records = 1<<63 - 1 }) },
		"no part":           func(e []Entry) []Entry { return segment(e, 0, func(s *chunk.Segment) { s.Part = "" }) },
		"a part elsewhere":  func(e []Entry) []Entry { return segment(e, 0, func(s *chunk.Segment) { s.Part = "../out" }) },
		"twice by another": func(e []Entry) []Entry {
			return append(e, segment(story(), 7, func(s *chunk.Segment) { s.Part = "f" })[7])
		},
		"twice, other bytes": func(e []Entry) []Entry {
			return append(e, segment(story(), 7, func(s *chunk.Segment) { s.Files[0].CRC++ })[7])
		},
		"twice, other end": func(e []Entry) []Entry {
			return append(e, segment(story(), 7, func(s *chunk.Segment) { s.Tally.Records++ })[7])
		},
		"into the next": func(e []Entry) []Entry { return segment(e, 5, func(s *chunk.Segment) { s.Tally.Records = 7 }) },
		"inside another": func(e []Entry) []Entry {
			return append(e, segment(story(), 7, func(s *chunk.Segment) { s.First, s.Tally.Records = 27, 1 })[7])
		},
		"into the output": func(e []Entry) []Entry {
			return append(e, segment(story(), 7, func(s *chunk.Segment) { s.First, s.Tally.Records = 15, 7 })[7])
		},
		"output beyond":       func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Next, d.Tally.Records = 35, 35 }) },
		"output beyond a gap": func(e []Entry) []Entry { return slices.Delete(e, 4, 5) },
		"output never":        func(e []Entry) []Entry { return e[2:] },
		"output in a segment": func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Next, d.Tally.Records = 15, 15 }) },
		"output of nothing":   func(e []Entry) []Entry { return durable(e, 2, func(d *Durable) { d.Tally.Records = 0 }) },
		"output before 0":     func(e []Entry) []Entry { return durable(e, 2, func(d *Durable) { d.Tally.Records = 11 }) },
		"output longer":       func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Sizes[chunk.Results]++ }) },
		"errors longer":       func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Sizes[chunk.FailedRecords]++ }) },
		"failures shorter":    func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Sizes[chunk.Failures]-- }) },
		"output elsewhere":    func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Place.Offset++ }) },
		"counts do not agree": func(e []Entry) []Entry { return durable(e, 6, func(d *Durable) { d.Tally.Failed++ }) },
		"complete, but for d": func(e []Entry) []Entry { return append(e, Entry{Complete: e[6].Durable}) },
		"complete, but beyond": func(e []Entry) []Entry {
			return append(e, Entry{Complete: &Durable{Next: 40, Tally: chunk.Tally{Counts: chunk.Counts{Records: 40}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Replay(damage(story()))
			chunktest.WantKind(t, err, fault.Conflict)
			if diff := cmp.Diff(State{}, s); diff != "" {
				t.Errorf("there is a state nevertheless: %s", diff)
			}
		})
	}
}

// TestReplayComplete: also for an empty output, and for an input with skipped records.
func TestReplayComplete(t *testing.T) {
	for _, d := range []Durable{{}, {Next: 7}} {
		s, err := Replay([]Entry{{Complete: &d}})
		chunktest.Must(t, err)
		if !s.Complete || s.Durable.Next != d.Next {
			t.Errorf("%+v", s)
		}
	}
}

// TestRemaining: for any segments, what remains is what is not in them; for all chunks at
// once and one after another; and also if the file is now split at other places.
func TestRemaining(t *testing.T) {
	r := chunktest.Seeded(t)
	for range 150 {
		data := chunktest.Input(r, 40)
		path := chunktest.Temporary(t, data)
		all, _ := chunktest.Records(data)
		total := int64(len(all))
		at := func(record int64) chunk.Place {
			if record == total {
				return chunk.Place{Offset: int64(len(data)), Line: int64(len(chunktest.Split(data))) + 1}
			}
			return chunk.Place{Offset: all[record].Offset, Line: all[record].Line}
		}
		// Segments anywhere; those up to the first gap may be in the output.
		var state State
		inOutput, done := r.IntN(2) == 0, make([]bool, total)
		for next := int64(0); next < total; {
			n := 1 + r.Int64N(min(8, total-next))
			switch {
			case inOutput && r.IntN(3) > 0:
				state.Durable.Next, state.Durable.Place = next+n, at(next+n)
			case r.IntN(2) == 0:
				inOutput = false
				state.Segments = append(state.Segments, chunk.Segment{
					First: next, Start: at(next), Next: at(next + n), Tally: chunk.Tally{Counts: chunk.Counts{Records: n}},
				})
			default:
				inOutput = false
				next += n
				continue
			}
			for i := range n {
				done[next+i] = true
			}
			next += n
		}
		var want []chunktest.Line
		for i, l := range all {
			if !done[i] {
				want = append(want, l)
			}
		}
		planned := plan(t, path, cutOptions{Chunks: 1 + r.IntN(6), BatchSize: 1 + r.IntN(3), Split: []input.Split{input.SplitRecords, input.SplitBytes}[r.IntN(2)]})
		left := state.Remaining(planned)
		if diff := cmp.Diff(want, readAll(t, left)); diff != "" {
			t.Fatalf("%q, %+v: %s", data, state, diff)
		}
		one, err := counted(planned, total, state)
		chunktest.Must(t, err)
		if diff := cmp.Diff(left, drain(t, one), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("one at a time: %s", diff)
		}
		if n, known := one.Total(); n != total || !known {
			t.Errorf("total %d, %v", n, known)
		}
	}
}

// TestVerify: a damaged part counts as missing.
func TestVerify(t *testing.T) {
	flip := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		return os.WriteFile(path, data, 0o600)
	}
	for name, damage := range map[string]func(path string) error{
		"whole":     nil,
		"missing":   os.Remove,
		"emptied":   func(path string) error { return os.Truncate(path, 0) },
		"shorter":   func(path string) error { return os.Truncate(path, 1) },
		"longer":    func(path string) error { return os.Truncate(path, 4096) },
		"flipped":   flip,
		"no file":   func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"no folder": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		for _, suffix := range suffixes[:chunk.PartFiles] {
			t.Run(name+suffix, func(t *testing.T) {
				j := newJob(t)
				a, b, stray := j.segment(t, 0, 6, true), j.segment(t, 6, 6, true), j.segment(t, 12, 6, true)
				journal := j.journal(t)
				chunktest.Must(t, journal.Append(Entry{Segment: &a}))
				chunktest.Must(t, journal.Append(Entry{Segment: &b}))
				want := []chunk.Segment{a, b}
				if damage != nil {
					chunktest.Must(t, damage(filepath.Join(j.parts(), b.Part+suffix)))
					want = want[:1]
				}
				if name == "no folder" {
					want = nil
				}
				state := State{Segments: []chunk.Segment{a, b}}
				chunktest.Must(t, state.Verify(j.parts(), journal))
				if diff := cmp.Diff(want, state.Segments, cmpopts.EquateEmpty()); diff != "" {
					t.Error(diff)
				}
				if _, err := os.Stat(filepath.Join(j.parts(), stray.Part+suffix)); err == nil {
					t.Error("the stray part still exists")
				}
				entries, err := ReadJournal(journal.path)
				chunktest.Must(t, err)
				replayed, err := Replay(entries)
				chunktest.Must(t, err)
				if diff := cmp.Diff(want, replayed.Segments, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("the journal does not know: %s", diff)
				}
			})
		}
	}
}
