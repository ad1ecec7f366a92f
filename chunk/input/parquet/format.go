package parquet

import (
	"bytes"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// Parquet is the format of Parquet files.
var Parquet = format.Format{
	Name: "parquet", Rows: true,
	Match: func(head []byte, _ bool) bool { return bytes.HasPrefix(head, []byte(parquet.Magic)) },
	Open:  func(f format.File, o format.Options) (format.Table, error) { return OpenFile(f, f.Size(), o) },
}
