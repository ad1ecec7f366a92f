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
	Open: func(ctx context.Context, f format.File, o format.Options) (format.Lines, error) {
		file, err := OpenFile(f, f.Size(), o)
		if err != nil {
			return format.Lines{}, err
		}
		group, skipped := file.groupOf(o.Skip)
		return format.Lines{ReadCloser: file.lines(ctx, group), First: skipped + 1, Skipped: skipped}, nil
	},
	Count: func(f format.File, o format.Options) (int64, error) {
		file, err := OpenFile(f, f.Size(), o)
		if err != nil {
			return 0, err
		}
		return file.Count(), nil
	},
	Columns: func(f format.File, o format.Options) ([]format.Column, error) {
		file, err := OpenFile(f, f.Size(), o)
		if err != nil {
			return nil, err
		}
		return file.Columns(), nil
	},
	Check: func(f format.File, o format.Options) error {
		_, err := OpenFile(f, f.Size(), o)
		return err
	},
}
