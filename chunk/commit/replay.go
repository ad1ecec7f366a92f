package commit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// State is what a journal records: how far the output is, and which segments are available
// as parts.
type State struct {
	// Durable is the newest durable point; the zero value means that there is none.
	Durable Durable
	// Output are the segments in the durable output, in order.
	Output []chunk.Segment
	// Encoded are the units that hold their results, in order.
	Encoded []Encoded
	// Segments follow Durable.Next, in order, without overlap.
	Segments []chunk.Segment
	// Complete is set when only renaming remained.
	Complete bool
	// Proven is a segment in which the kernel computed every record; nil if there is none.
	Proven *chunk.Segment
}

// Replay computes the state. Contradictory entries count as damage.
func Replay(entries []Entry) (State, error) {
	r := replay{live: make(map[int64]chunk.Segment), encoded: make(map[int64]Encoded)}
	for i, e := range entries {
		if err := r.apply(e); err != nil {
			return State{}, fault.JobDamaged.New("journal entry %d: %w", i+1, err)
		}
	}
	s := State{Durable: r.durable, Output: r.output, Encoded: r.units, Complete: r.complete, Proven: r.proven}
	for _, segment := range r.live {
		s.Segments = append(s.Segments, segment)
	}
	sort.Slice(s.Segments, func(i, j int) bool { return s.Segments[i].First < s.Segments[j].First })
	next := s.Durable.Next
	for _, segment := range s.Segments {
		if segment.First < next {
			return State{}, fault.JobDamaged.New("journal: records %d to %d were committed twice",
				segment.First, min(next, segment.End())-1)
		}
		next = segment.End()
	}
	if s.Complete && len(s.Segments) > 0 {
		return State{}, fault.JobDamaged.New("journal: the output is marked complete but lacks record %d",
			s.Segments[0].First)
	}
	return s, nil
}

// replay is the state while it is being computed.
type replay struct {
	live     map[int64]chunk.Segment // not in the durable output
	durable  Durable
	output   []chunk.Segment
	encoded  map[int64]Encoded // by their first record, not in the durable output
	units    []Encoded         // in it
	begun    bool              // there was a durable point
	complete bool
	proven   *chunk.Segment
}

func (r *replay) apply(e Entry) error {
	switch {
	case e.Segment != nil:
		return r.add(*e.Segment)
	case e.Drop != nil:
		if known, ok := r.live[e.Drop.First]; ok && known.Part == e.Drop.Part {
			delete(r.live, e.Drop.First)
		}
	case e.Encoded != nil:
		return r.encode(*e.Encoded)
	case e.Durable != nil:
		return r.advance(*e.Durable)
	case e.Complete != nil:
		r.complete = true
		return r.advance(*e.Complete)
	}
	return nil
}

// add adds a segment. It ignores a repeated line.
func (r *replay) add(s chunk.Segment) error {
	switch known, ok := r.live[s.First]; {
	case s.First < 0 || s.End() <= s.First:
		return fmt.Errorf("invalid segment of %d records at record %d", s.Tally.Records, s.First)
	case s.Part == "" || s.Part != filepath.Base(s.Part):
		return fmt.Errorf("%q is not a valid part name", s.Part)
	case s.End() <= r.durable.Next:
		return nil // already in the output
	case ok && (known.Part != s.Part || known.Next != s.Next || known.Files != s.Files || known.Tally.Counts != s.Tally.Counts):
		return fmt.Errorf("record %d was committed twice", s.First)
	}
	r.live[s.First] = s
	if r.proven == nil && s.Tally.Failed == 0 {
		r.proven = &s
	}
	return nil
}

// encode notes units. They count once a durable point covers them: until then they may be
// encoded again.
func (r *replay) encode(e Encoded) error {
	if e.First < 0 || e.Next < e.First {
		return fmt.Errorf("invalid units of records %d to %d", e.First, e.Next)
	}
	for _, u := range e.Units {
		if u.Raw < 0 || u.Bytes <= 0 || slices.ContainsFunc(u.Sides, func(f chunk.FileSum) bool { return f.Bytes < 0 }) {
			return fmt.Errorf("invalid unit of %d bytes", u.Bytes)
		}
	}
	r.encoded[e.First] = e
	return nil
}

// coverUnits moves the units of these segments, which a durable point covers, to the output, and
// returns their size, which should be want. A segment that no entry covers is a unit of its own.
// Units without records end a file. A durable point that was begun before them may follow them in
// the journal: only its size tells that it does not cover them.
func (r *replay) coverUnits(segments []chunk.Segment, from, to, want int64) (bytes int64, err error) {
	at := from
	for {
		for len(segments) > 0 && segments[0].First < at {
			segments = segments[1:]
		}
		e, ok := r.encoded[at]
		if !ok && len(segments) > 0 && segments[0].First == at {
			file := segments[0].Files[chunk.Results]
			e, ok = Encoded{First: at, Next: segments[0].End()}, true
			if file.Bytes > 0 {
				e.Units = []Unit{{Raw: file.Bytes, Bytes: file.Bytes, CRC: file.CRC}}
			}
		}
		if !ok || e.Next > to || e.Next == e.First && bytes == want {
			break
		}
		delete(r.encoded, at)
		r.units = append(r.units, e)
		for _, u := range e.Units {
			bytes += u.Bytes
		}
		if at = e.Next; e.Next == e.First {
			break
		}
	}
	if at != to {
		return 0, fmt.Errorf("the durable output includes record %d, which no unit holds", at)
	}
	return bytes, nil
}

// advance moves the segments that a durable point covers to the output, which must hold
// exactly those. A durable point stays valid, so an older one after a newer one is ignored.
func (r *replay) advance(d Durable) error {
	if r.begun && d.Next < r.durable.Next {
		return nil
	}
	at := r.durable
	if !r.begun { // the start of the output is not recorded
		at.Next = d.Next - d.Tally.Records
	}
	from, before, known := at.Next, at.Sizes[chunk.Results], len(r.output)
	for at.Next < d.Next {
		s, ok := r.live[at.Next]
		if !ok {
			return fmt.Errorf("the durable output includes record %d, which no segment holds", at.Next)
		}
		delete(r.live, at.Next)
		at.Next, at.Place = s.End(), s.Next
		r.output = append(r.output, s)
		at.Tally.Counts.Add(s.Tally.Counts)
		for i := range at.Sizes {
			at.Sizes[i] += s.Files[i].Bytes
		}
	}
	bytes, err := r.coverUnits(r.output[known:], from, d.Next, d.Sizes[chunk.Results]-before)
	if err != nil {
		return err
	}
	at.Sizes[chunk.Results] = before + bytes
	if at.Next != d.Next || at.Place != d.Place || at.Sizes != d.Sizes || at.Tally.Counts != d.Tally.Counts {
		return fmt.Errorf("the durable output ends at record %d with sizes %v, but its segments end at record %d with sizes %v",
			d.Next, d.Sizes, at.Next, at.Sizes)
	}
	r.durable, r.begun = d, true
	return nil
}

// ResultSum returns what the checksum of the durable results must be.
func (s State) ResultSum() chunk.FileSum { return s.sum(Unit.sum) }

// sum returns the checksum of what all units have in one of the files.
func (s State) sum(in func(Unit) chunk.FileSum) (sum chunk.FileSum) {
	for _, e := range s.Encoded {
		for _, u := range e.Units {
			sum = sum.Join(in(u))
		}
	}
	return sum
}

// Unencoded returns the size of the durable results before encoding.
func (s State) Unencoded() (bytes int64) {
	for _, segment := range s.Output {
		bytes += segment.Files[chunk.Results].Bytes
	}
	return bytes
}

// Done returns the number of records that need not be computed again.
func (s State) Done() int64 {
	done := s.Durable.Tally.Records
	for _, segment := range s.Segments {
		done += segment.Tally.Records
	}
	return done
}

// End returns the number of the record after the last one that the state holds.
func (s State) End() int64 {
	if n := len(s.Segments); n > 0 {
		return s.Segments[n-1].End()
	}
	return s.Durable.Next
}

// Holds reports whether the state holds results for all of these records.
func (s State) Holds(first, records int64) bool {
	return len(s.Remaining([]chunk.Chunk{{First: first, Records: records}})) == 0
}

// Remaining returns what remains of the planned chunks, in order. Every remaining chunk
// begins at the start of a chunk or the end of a segment, and ends at the end of a chunk or
// the start of a segment. Those places are known without reading the input.
func (s State) Remaining(planned []chunk.Chunk) []chunk.Chunk {
	var left []chunk.Chunk
	for _, c := range planned {
		end := c.First + c.Records
		if end <= s.Durable.Next {
			continue
		}
		if c.First < s.Durable.Next {
			// The output ends inside this chunk, at the end of its last segment.
			c = c.Tail(s.Durable.Place, s.Durable.Next)
		}
		after := sort.Search(len(s.Segments), func(i int) bool { return s.Segments[i].End() > c.First })
		for _, segment := range s.Segments[after:] {
			if segment.First >= end {
				break
			}
			if segment.First > c.First {
				left = append(left, c.Head(segment.Start, segment.First))
			}
			c = c.Tail(segment.Next, segment.End())
		}
		if c.Records > 0 {
			left = append(left, c)
		}
	}
	return left
}

// Verify reads the parts and drops segments whose parts are missing or damaged; their
// records are computed again. It records the drops in the journal and removes parts that
// belong to no segment.
func (s *State) Verify(dir string, journal *Journal) error {
	known := make(map[string]bool)
	kept := s.Segments[:0]
	for _, segment := range s.Segments {
		err := checkPart(dir, segment)
		if isReadFault(err) { // it may be intact
			return fault.JobFiles.New("check part: %w", err)
		}
		if err == nil {
			kept = append(kept, segment)
			known[segment.Part] = true
			continue
		}
		if err := journal.Append(Entry{Drop: &Drop{First: segment.First, Part: segment.Part}}); err != nil {
			return err
		}
	}
	s.Segments = kept
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fault.PartDamaged.New("read parts: %w", err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), filepath.Ext(entry.Name()))
		if !known[name] && filepath.Ext(entry.Name()) != EarlySuffix {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	return nil
}
