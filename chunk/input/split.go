package input

import (
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// SplitAt splits a chunk after its first keep records; second is empty if that is all of
// it. It reads the first part.
func SplitAt(c chunk.Chunk, keep int64) (first, second chunk.Chunk, err error) {
	if keep >= c.Records {
		return c, chunk.Chunk{}, nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return c, chunk.Chunk{}, fault.InputUnreadable.New("read input: %w", err)
	}
	defer file.Close()
	end := c.Offset + c.Length
	at, err := lineScan{file, c.Offset, end, make([]byte, readBytes)}.find(c.Offset, end, count{lines: c.Line - 1}, keep)
	if err != nil {
		return c, chunk.Chunk{}, fault.InputUnreadable.New("read input %s: %w", c.File, err)
	}
	border := c.First + keep
	return c.Head(at, border), c.Tail(at, border), nil
}
