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

// ZstdMost and LZ4Most return how many bytes compressed data can become at most: a block of zstd takes 4
// bytes for up to 128 KiB, and a byte of LZ4 stands for up to 255.
func ZstdMost(packed []byte) int64 { return (int64(len(packed))/4 + 1) * (128 << 10) }
func LZ4Most(packed []byte) int64  { return int64(len(packed)) * 255 }

// zstdDecoder never writes more than the capacity of its destination.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return d
})
