package parquet

import (
	"bytes"
	"context"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// Parquet is the format of Parquet files.
var Parquet = format.Format{
	Name: "parquet", Rows: true,
	Match: func(head []byte, _ bool) bool { return bytes.HasPrefix(head, []byte(parquet.Magic)) },
	Open:  func(f format.File, o format.Options) (format.Table, error) { return OpenFile(f, f.Size(), o) },
}

// Lines returns the rows as JSON lines, in order, except those of row groups that are skipped. Row
// groups are decoded in parallel, ahead of the reader. An error names the row group and, where it is
// known, row and column.
func (f *File) Lines(ctx context.Context, skip int64) format.Lines {
	group, skipped := f.groupOf(skip)
	l := f.lines(ctx, group)
	lines := format.Lines{ReadCloser: l, First: skipped + 1, Skipped: skipped}
	if f.blobs > 0 {
		lines.Blobs = l.Blobs.Next
	}
	return lines
}
