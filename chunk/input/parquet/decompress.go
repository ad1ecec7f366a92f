package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// checkCodec refuses a column whose codec is not supported.
func checkCodec(codec int32) error {
	switch codec {
	case parquet.CodecNone, parquet.CodecSnappy, parquet.CodecGzip, parquet.CodecBrotli, parquet.CodecZstd, parquet.CodecLZ4, parquet.CodecLZ4Raw:
		return nil
	case parquet.CodecLZO:
		return errors.New("it is compressed with LZO, which is not supported; write the file again with zstd")
	}
	return fmt.Errorf("it is compressed with codec %d, which is unknown", codec)
}

// errPacked means that compressed data does not have the size that its header gives.
var errPacked = errors.New("the compressed data does not match its header")

// decompress returns the data of a page, which must have exactly the given size. It uses
// dst, if that is large enough, and never allocates more than the size.
func decompress(codec int32, dst, packed []byte, size int) ([]byte, error) {
	if codec == parquet.CodecNone {
		if len(packed) != size {
			return nil, errPacked
		}
		return packed, nil
	}
	dst = slices.Grow(dst[:0], size)[:0]
	var err error
	switch codec {
	case parquet.CodecSnappy:
		dst, err = decompressSnappy(dst[:size], packed)
	case parquet.CodecZstd:
		dst, err = zstdDecoder().DecodeAll(packed, dst[:0:size])
	case parquet.CodecGzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(packed)); err == nil {
			dst, err = readAll(r, dst[:size])
		}
	case parquet.CodecBrotli:
		dst, err = readAll(brotli.NewReader(bytes.NewReader(packed)), dst[:size])
	case parquet.CodecLZ4:
		dst, err = decompressHadoopLZ4(dst[:size], packed)
	case parquet.CodecLZ4Raw:
		dst, err = decompressLZ4(dst[:size], packed)
	default:
		err = checkCodec(codec)
	}
	if err == nil && len(dst) != size {
		err = errPacked
	}
	return dst, err
}

// zstdDecoder never writes more than the capacity of its destination.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return d
})

// decompressSnappy checks the size at the start of a block, which the decoder would
// allocate.
func decompressSnappy(dst, packed []byte) ([]byte, error) {
	size, err := snappy.DecodedLen(packed)
	if err != nil {
		return nil, err
	}
	if size != len(dst) {
		return nil, errPacked
	}
	return snappy.Decode(dst, packed)
}

// readAll fills dst, after which r must end.
func readAll(r io.Reader, dst []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, dst); err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) { // Read may return 0, nil
		return nil, errPacked
	}
	return dst, nil
}
