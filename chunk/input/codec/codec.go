// Package codec decompresses the blocks of columnar files into memory of a known size. Nothing in
// a block makes it allocate more.
package codec

import (
	"errors"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ErrSize means that compressed data does not have the size that its header gives.
var ErrSize = errors.New("the compressed data does not match its header")

// Zstd decompresses into dst, and returns the part of it that the data fills.
func Zstd(dst, packed []byte) ([]byte, error) {
	return zstdDecoder().DecodeAll(packed, dst[:0:len(dst)])
}

// zstdDecoder never writes more than the capacity of its destination.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return d
})
