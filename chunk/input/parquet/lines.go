package parquet

import (
	"context"
	"io"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parallel"
)

// Lines returns the rows as JSON lines, in order, without the row groups that are skipped. Row
// groups are decoded in parallel, ahead of the reader. An error names the row group and, where it is
// known, row and column.
func (f *File) Lines(ctx context.Context, skip int64) format.Lines {
	first, skipped := f.groupOf(skip)
	next := func() (parallel.Group, error) {
		group := first
		if first++; group >= f.Groups() {
			return nil, io.EOF
		}
		return func(ctx context.Context, memory *parallel.Share, send func(parallel.Block) error) error {
			return f.decode(ctx, group, memory, send)
		}, nil
	}
	return parallel.Lines(ctx, parallel.Limits{Threads: f.threads, What: pages, Memory: f.memory}, next).After(skipped, f.blobs)
}

// decode decodes a row group into blocks.
func (f *File) decode(ctx context.Context, group int, memory *parallel.Share, send func(parallel.Block) error) error {
	var last parallel.Block
	err := f.eachRow(ctx, group, memory, func(w *rowWriter) error {
		err := w.line()
		last = parallel.Block{Lines: w.dst, Blobs: w.beside.Rows, Beside: w.beside.Size}
		if err == nil && len(w.dst)+w.beside.Size >= parallel.BlockBytes {
			err = send(last)
			w.dst, w.beside, last = parallel.NewLines(int64(len(w.dst)+parallel.BlockBytes/8)), parallel.Beside{}, parallel.Block{}
		}
		return err
	})
	if err != nil {
		return err
	}
	return send(last)
}
