package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
)

// Sums are checksums of an input, computed while its lines are counted: one for each
// of several consecutive stretches, starting at byte From. They distinguish an input that
// was modified from one that was only touched or appended to.
type Sums struct {
	From      int64           `json:"from"`
	Stretches []chunk.FileSum `json:"stretches"`
}

// The maximum number of stretches for a file and for one chunk of a file that is split by
// bytes. They bound what a job stores; job.json holds the stretches of a file.
const (
	fileStretches  = 1024
	chunkStretches = 64
)

// sumsOf merges blocks into at most the given number of stretches.
func sumsOf(from int64, blocks []scanned, most int) Sums {
	s := Sums{From: from}
	each := max(1, (len(blocks)+most-1)/most)
	for group := range slices.Chunk(blocks, each) {
		var sum chunk.FileSum
		for _, b := range group {
			sum = sum.Join(b.sum)
		}
		s.Stretches = append(s.Stretches, sum)
	}
	return s
}

// join returns s with the stretches that follow it.
func (s Sums) join(next Sums) Sums {
	if len(s.Stretches) == 0 {
		s.From = next.From
	}
	s.Stretches = append(s.Stretches, next.Stretches...) // who has a copy of s does not see them
	return s
}

// all returns the checksum of all stretches together.
func (s Sums) all() (sum chunk.FileSum) {
	for _, stretch := range s.Stretches {
		sum = sum.Join(stretch)
	}
	return sum
}

// end returns the end offset of the last stretch.
func (s Sums) end() int64 { return s.From + s.all().Bytes }

// ErrOtherBytes means that a file does not hold the bytes that were summed.
var ErrOtherBytes = errors.New("different bytes")

// CheckAll reads the file and returns an error that wraps ErrOtherBytes if it does not hold
// the bytes that were summed. Bytes after them do not matter.
func (s Sums) CheckAll(path string) error { return s.Check(path, s.From, s.end()) }

// Check is like CheckAll, but only for the stretches that contain the bytes from..to.
func (s Sums) Check(path string, from, to int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(runtime.GOMAXPROCS(0))
	next := s.From
	for _, want := range s.Stretches {
		at := next
		next += want.Bytes
		if at >= to || next <= from || ctx.Err() != nil {
			continue
		}
		group.Go(func() error {
			buffer := newBlock()
			defer blockPool.Put(&buffer)
			var sum chunk.FileSum
			_, err := io.CopyBuffer(&sum, struct{ io.Reader }{io.NewSectionReader(file, at, want.Bytes)}, buffer)
			if err == nil && sum != want {
				err = fmt.Errorf("%w between offsets %d and %d", ErrOtherBytes, at, at+want.Bytes)
			}
			return err
		})
	}
	return group.Wait()
}
