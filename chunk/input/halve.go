package input

import (
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Halve splits a chunk in two at a batch border. A chunk of one batch or less stays whole,
// and second is empty. It reads the first half.
func Halve(c chunk.Chunk, batch int) (first, second chunk.Chunk, err error) {
	return SplitAt(c, chunk.Size(c.Records, 2, batch))
}

// SplitAt splits a chunk after its first keep records; second is empty if that is all of
// it. It reads the first part.
func SplitAt(c chunk.Chunk, keep int64) (first, second chunk.Chunk, err error) {
	if keep >= c.Records {
		return c, chunk.Chunk{}, nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return c, chunk.Chunk{}, fault.New(fault.Storage, "read input: %w", err)
	}
	defer file.Close()
	var at chunk.Place
	line, seen, end := c.Line-1, int64(0), c.Offset+c.Length
	err = eachLineStart(file, c.Offset, end, c.Offset, end, make([]byte, readBytes), func(offset int64, blank bool) bool {
		line++
		if blank {
			return true
		}
		if seen == keep {
			at = chunk.Place{Offset: offset, Line: line}
			return false
		}
		seen++
		return true
	})
	if err != nil {
		return c, chunk.Chunk{}, fault.New(fault.Storage, "read input %s: %w", c.File, err)
	}
	if at.Line == 0 {
		return c, chunk.Chunk{}, fault.New(fault.Storage, "input %s changed while it was being read", c.File)
	}
	border := c.First + keep
	return c.Head(at, border), c.Tail(at, border), nil
}
