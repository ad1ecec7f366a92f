package decode

import (
	"context"
	"io"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/arrow"
	"github.com/gpurun/gpurun/chunk/input/csv"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parquet"
	"github.com/gpurun/gpurun/chunk/input/webdataset"
	"github.com/gpurun/gpurun/internal/fault"
)

// formats are what gpurun reads, in the order in which they are tried. JSON lines come
// last: anything that no other format recognizes is taken for them.
//
// A store of objects would have its place in package expand, which finds the files, and
// in Source, which opens them.
var formats = []format.Format{parquet.Parquet, arrow.Arrow, csv.CSV, csv.TSV, webdataset.Tar, jsonl}

// jsonl is the format of records themselves.
var jsonl = format.Format{
	Name:  "jsonl",
	Match: func([]byte, bool) bool { return true },
	Stream: func(_ context.Context, r io.Reader, _ format.Options) (format.Lines, error) {
		return format.Lines{ReadCloser: io.NopCloser(r), First: 1}, nil
	},
}

// Names returns the names of the formats.
func Names() (names []string) {
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// byName returns a format.
func byName(name string) (format.Format, error) {
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
	}
	return format.Format{}, fault.UnknownFormat.New("input format %q is not one of %s", name, strings.Join(Names(), ", ")).Set("input-format")
}
