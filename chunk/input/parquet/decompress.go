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

// codecs decompress a page into dst, which has the size that the page must have. They never allocate
// more.
var codecs = map[int32]func(dst, packed []byte) ([]byte, error){
	parquet.CodecNone:   func(dst, packed []byte) ([]byte, error) { return append(dst[:0], packed...), nil },
	parquet.CodecSnappy: decompressSnappy,
	parquet.CodecZstd: func(dst, packed []byte) ([]byte, error) {
		return zstdDecoder().DecodeAll(packed, dst[:0:len(dst)])
	},
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
	parquet.CodecLZ4:    decompressHadoopLZ4,
	parquet.CodecLZ4Raw: decompressLZ4,
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

// errPacked means that compressed data does not have the size that its header gives.
var errPacked = errors.New("the compressed data does not match its header")

// decompress returns the data of a page, which must have exactly the given size. It uses
// dst, if that is large enough.
func decompress(codec int32, dst, packed []byte, size int) ([]byte, error) {
	data, err := codecs[codec](slices.Grow(dst[:0], size)[:size], packed)
	if err == nil && len(data) != size {
		err = errPacked
	}
	return data, err
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
