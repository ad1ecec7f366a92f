package commit

import (
	"bufio"
	"context"
	"io"

	"github.com/gpurun/gpurun/chunk"
)

// The durable results of an encoded output are checked unit by unit. It can be cut back only
// to a mark: between two marks, a segment may begin in one unit and end in another.

// checkUnits finds how much of the encoded results is intact.
func (s State) checkUnits(ctx context.Context, in io.Reader, to *extent) error {
	buffered := bufio.NewReaderSize(&interruptible{ctx, in}, checkBuffer)
	for _, e := range s.Encoded {
		for _, u := range e.Units {
			var sum chunk.FileSum
			_, err := io.CopyN(&sum, buffered, u.Bytes)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case isReadFault(err):
				return err
			case err != nil || sum != u.sum():
				to.end(s.segmentsBefore(e.First))
				return nil
			}
		}
	}
	return nil
}

// unitsWithin returns how many segments are in the first bytes of the encoded results.
func (s State) unitsWithin(bytes int64) int {
	var end int64
	for _, e := range s.Encoded {
		if end += e.sum().Bytes; end > bytes {
			return s.segmentsBefore(e.First)
		}
	}
	return len(s.Output)
}

// segmentsBefore returns how many segments of the output end at or before a record.
func (s State) segmentsBefore(record int64) (n int) {
	for n < len(s.Output) && s.Output[n].End() <= record {
		n++
	}
	return n
}

// floor returns how many of the first n segments can be kept: up to a mark.
func (s State) floor(n int) int {
	if s.Encoded == nil || n == len(s.Output) {
		return n
	}
	mark := 0
	for _, e := range s.Encoded {
		if before := s.segmentsBefore(e.Next); before <= n {
			mark = before
		}
	}
	return mark
}

// cutUnits discards the units after the last segment that is kept. Those without records end a
// file.
func (s *State) cutUnits() {
	if s.Encoded == nil {
		return
	}
	kept := make([]Encoded, 0, len(s.Encoded))
	var bytes int64
	for _, e := range s.Encoded {
		if len(s.Output) > 0 && e.Next <= s.Durable.Next && e.Next > e.First {
			kept = append(kept, e)
			bytes += e.sum().Bytes
		}
	}
	s.Encoded, s.Durable.Sizes[chunk.Results] = kept, bytes
}
