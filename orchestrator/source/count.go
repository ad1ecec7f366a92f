package source

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// Count counts the records of an input that is one file of plain lines, unless it is split by
// bytes. It returns nil for any other input, which is counted as it is read. A range of records
// can only be found by counting; window is where an earlier count found it.
func (i *Inputs) Count(ctx context.Context, split input.Split, limits input.Limits, window *chunk.Chunk) (*input.Count, error) {
	file := i.plain()
	if file == nil {
		return nil, nil
	}
	size := file.info.Size()
	if window != nil {
		limits, size = input.Limits{}, window.Length
	}
	if limits == (input.Limits{}) && !split.Counts(size) {
		return nil, nil
	}
	return input.CountFile(ctx, file.Name, limits, window)
}

// Index is where the ranges of an input are, so that no job has to count what precedes its
// own.
type Index struct {
	// Places are the ranges in an input that is one plain file.
	Places []chunk.Chunk `json:"places,omitempty"`
	// Files are the numbers of records in the files of any other input.
	Files []int64 `json:"files,omitempty"`
}

// Survey is what must be known of an input before it is divided into ranges.
type Survey struct {
	// Records is how many the limits select.
	Records int64
	Index   Index
	// Notes are lines for the user.
	Notes []string
}

// Survey reads all of an input of files, a file on each core, and finds the ranges, of equal size by
// ceiling division.
func (i *Inputs) Survey(ctx context.Context, limits input.Limits, ranges, cores int) (s Survey, err error) {
	count, err := i.Count(ctx, input.SplitRecords, limits, nil)
	if err != nil {
		return s, err
	}
	if count != nil {
		cut, err := count.Cut(ranges, 1)
		s.Records, s.Index.Places = cut.Records, cut.Chunks
		return s, err
	}
	counts := make([]int64, len(i.Files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cores)
	for k, file := range i.Files {
		group.Go(func() (err error) {
			counts[k], err = file.count(ctx, format.Options{Columns: i.options.Columns, Threads: 1}, i.options.SkipBad)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return s, err
	}
	for _, n := range counts {
		s.Records += n
	}
	s.Records = max(0, s.Records-limits.Offset)
	if limits.Limit > 0 {
		s.Records = min(s.Records, limits.Limit)
	}
	s.Index.Files = counts
	s.noteReread(i.Files, counts, ranges)
	return s, nil
}

// manyBytes is how many compressed bytes the machines may decode only to skip them, without a
// warning.
const manyBytes = 1 << 30

// noteReread warns of compressed files that machines decode up to their range, half of the file on
// average, although they use nothing of it.
func (s *Survey) noteReread(files []File, counts []int64, ranges int) {
	size := max(1, chunk.Size(s.Records, ranges, 1))
	for i, file := range files {
		begin := chunk.CeilDiv(counts[i], size) - 1 // ranges that begin inside
		if times := chunk.CeilDiv(begin, 2); !file.kind.Seekable() && times*file.info.Size() > manyBytes {
			s.Notes = append(s.Notes, fmt.Sprintf("%s (%s) can only be read from its start: machines whose shards begin inside it decode what precedes them, about %d times the file in all; "+
				"fewer shards, or the same records in many files, avoid that", file.Name, file.kind, times))
		}
	}
}

// count counts the records of a file. A damaged one ends where the damage begins, if such files
// are skipped.
func (f File) count(ctx context.Context, options format.Options, skipBad bool) (records int64, err error) {
	if !skipBad {
		stored := false // by the file itself
		err = f.open(func(file format.File) (err error) {
			records, stored, err = decode.Count(file, f.kind, options)
			return err
		})
		if err != nil {
			return 0, fault.BadInput.New("read input %s: %w", f.Name, err)
		}
		if stored {
			return records, nil
		}
	}
	err = f.Each(ctx, options, 0, func(record.Line) bool { records++; return true })
	switch {
	case ctx.Err() != nil:
		return 0, fault.Interrupted.New("stopped before anything was started")
	case err != nil && !skipBad:
		return 0, fault.BadInput.New("read input %s: %w", f.Name, err)
	}
	return records, nil
}

// contextReader fails when its context ends.
type contextReader struct {
	ctx context.Context
	in  io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}
