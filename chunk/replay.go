package chunk

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// State is what a journal says: how far the output is, and which segments lie
// ready as parts.
type State struct {
	// Durable is the newest such entry; its zero value is an output not begun.
	Durable Durable
	// Segments are behind Durable.Next, in order, without overlap.
	Segments []Segment
	// Complete is set when only renaming was left.
	Complete bool
}

// Replay works out the state. Entries that contradict each other are damage.
func Replay(entries []Entry) (State, error) {
	live := make(map[int64]Segment)
	var s State
	for i, e := range entries {
		var err error
		switch {
		case e.Segment != nil:
			err = addSegment(live, *e.Segment)
		case e.Drop != nil:
			if known, ok := live[e.Drop.First]; ok && known.Part == e.Drop.Part {
				delete(live, e.Drop.First)
			}
		case e.Durable != nil:
			s.Durable = *e.Durable
		case e.Complete != nil:
			s.Durable, s.Complete = *e.Complete, true
		}
		if err != nil {
			return State{}, fault.New(fault.Conflict, "journal entry %d: %w; --fresh starts the job over", i+1, err)
		}
	}
	for _, segment := range live {
		if segment.First >= s.Durable.Next {
			s.Segments = append(s.Segments, segment)
		}
	}
	sort.Slice(s.Segments, func(i, j int) bool { return s.Segments[i].First < s.Segments[j].First })
	for i := 1; i < len(s.Segments); i++ {
		if before := s.Segments[i-1]; before.end() > s.Segments[i].First {
			return State{}, fault.New(fault.Conflict, "journal: records %d and %d were both computed twice; --fresh starts the job over",
				s.Segments[i].First, before.end()-1)
		}
	}
	return s, nil
}

// addSegment takes a line twice for once.
func addSegment(live map[int64]Segment, s Segment) error {
	if s.Tally.Records <= 0 || s.First < 0 {
		return fmt.Errorf("a segment of %d records at %d", s.Tally.Records, s.First)
	}
	if known, ok := live[s.First]; ok && (known.Part != s.Part || known.Tally.Counts != s.Tally.Counts) {
		return fmt.Errorf("record %d was committed twice", s.First)
	}
	live[s.First] = s
	return nil
}

func (s Segment) end() int64 { return s.First + s.Tally.Records }

// Done is the number of records that need not be computed again.
func (s State) Done() int64 {
	done := s.Durable.Tally.Records
	for _, segment := range s.Segments {
		done += segment.Tally.Records
	}
	return done
}

// Remaining is what is left of the planned chunks, in order. Everything left
// begins where a chunk or a segment's successor begins, and ends where a chunk or
// a segment does: those places are known without reading the input.
func (s State) Remaining(planned []Chunk) []Chunk {
	var left []Chunk
	for _, c := range planned {
		end := c.First + c.Records
		if end <= s.Durable.Next {
			continue
		}
		if c.First < s.Durable.Next {
			// The output ends inside this chunk: with the segment that ended there.
			c = cutBefore(c, s.Durable.Place, s.Durable.Next)
		}
		for _, segment := range s.Segments {
			if segment.First < c.First || segment.First >= end {
				continue
			}
			if segment.First > c.First {
				left = append(left, cutBehind(c, segment.Start, segment.First))
			}
			c = cutBefore(c, segment.Next, segment.end())
		}
		if c.Records > 0 {
			left = append(left, c)
		}
	}
	return left
}

// cutBefore is the part of c that begins at record first, which stands at at.
func cutBefore(c Chunk, at Place, first int64) Chunk {
	end, last := c.Offset+c.Length, c.First+c.Records
	c.Offset, c.Line = at.Offset, at.Line
	c.Length, c.First, c.Records = end-at.Offset, first, last-first
	return c
}

// cutBehind is the part of c that ends before record end, which stands at at.
func cutBehind(c Chunk, at Place, end int64) Chunk {
	c.Length, c.Records = at.Offset-c.Offset, end-c.First
	return c
}

// Verify reads the parts and drops the segments whose parts are missing or
// damaged: their records are computed again. Parts that no segment knows are
// removed. The journal learns what was dropped.
func (s *State) Verify(dir string, journal *Journal) error {
	known := make(map[string]bool)
	kept := s.Segments[:0]
	for _, segment := range s.Segments {
		if CheckPart(dir, segment) == nil {
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
	if err != nil {
		return fault.New(fault.Storage, "read parts: %w", err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), filepath.Ext(entry.Name()))
		if !known[name] {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	return nil
}
