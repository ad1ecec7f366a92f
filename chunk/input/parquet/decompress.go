package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"

	"github.com/gpurun/gpurun/chunk/input/codec"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// codecs decompress a page into dst, which has the size that the page must have. They never allocate
// more.
var codecs = map[int32]func(dst, packed []byte) ([]byte, error){
	parquet.CodecNone:   func(dst, packed []byte) ([]byte, error) { return append(dst[:0], packed...), nil },
	parquet.CodecSnappy: decompressSnappy,
	parquet.CodecZstd:   codec.Zstd,
	parquet.CodecGzip: func(dst, packed []byte) ([]byte, error) {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		return readAll(r, dst)
	},
	parquet.CodecBrotli: func(dst, packed []byte) ([]byte, error) {
		return readAll(brotli.NewReader(bytes.NewReader(packed)), dst)
	},
	parquet.CodecLZ4:    codec.HadoopLZ4,
	parquet.CodecLZ4Raw: codec.LZ4,
}

// checkCodec refuses a column whose codec is not supported.
func checkCodec(codec int32) error {
	switch {
	case codecs[codec] != nil:
		return nil
	case codec == parquet.CodecLZO:
		return errors.New("it is compressed with LZO, which is not supported; write the file again with zstd")
	}
	return fmt.Errorf("it is compressed with codec %d, which is unknown", codec)
}

// decompress returns the data of a page, which must have exactly the given size. It uses
// dst, if that is large enough.
func decompress(number int32, dst, packed []byte, size int) ([]byte, error) {
	data, err := codecs[number](sized(dst, size), packed)
	if err == nil && len(data) != size {
		err = codec.ErrSize
	}
	return data, err
}

// decompressSnappy checks the size at the start of a block, which the decoder would
// allocate.
func decompressSnappy(dst, packed []byte) ([]byte, error) {
	size, err := snappy.DecodedLen(packed)
	if err != nil {
		return nil, err
	}
	if size != len(dst) {
		return nil, codec.ErrSize
	}
	return snappy.Decode(dst, packed)
}

// readAll fills dst, after which r must end.
func readAll(r io.Reader, dst []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, dst); err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) { // Read may return 0, nil
		return nil, codec.ErrSize
	}
	return dst, nil
}
