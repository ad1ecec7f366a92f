package csv

import (
	"context"
	"io"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// CSV and TSV are the formats of tables with a header, separated by commas and by tabs.
var (
	CSV = tables("csv", ',')
	TSV = tables("tsv", '\t')
)

func tables(name string, separator byte) format.Format {
	return format.Format{
		Name: name, Rows: true,
		Match: func(head []byte, whole bool) bool { return Match(head, whole, separator) },
		Stream: func(_ context.Context, r io.Reader, o format.Options) (format.Lines, error) {
			lines, err := NewReader(r, separator, o)
			if err != nil {
				return format.Lines{}, err
			}
			return format.Lines{ReadCloser: io.NopCloser(lines), First: 1}, nil
		},
	}
}
