package parquet

import "fmt"

// The compression codecs of Parquet.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecLZO    = 3
	codecBrotli = 4
	codecLZ4    = 5
	codecZstd   = 6
	codecLZ4Raw = 7
)

// checkCodec refuses a column that cannot be read safely. On a damaged LZ4 page parquet-go
// doubles its buffer until memory is exhausted; nothing in the page tells how much it needs.
func checkCodec(codec int64) error {
	switch codec {
	case codecNone, codecSnappy, codecGzip, codecBrotli, codecZstd:
		return nil
	case codecLZ4, codecLZ4Raw:
		return fmt.Errorf("it is compressed with LZ4, which is not supported; write the file again with zstd")
	case codecLZO:
		return fmt.Errorf("it is compressed with LZO, which is not supported; write the file again with zstd")
	}
	return fmt.Errorf("it is compressed with codec %d, which is unknown", codec)
}
