package parquet

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// encoder compresses whole blocks, and goroutines may share it. The result depends on the
// block alone. It uses the fastest level: the default one takes twice the time and saves at
// most a tenth of text. The bytes of floats hardly repeat, but some are more frequent than
// others, which saves 7% if literals are always encoded.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return e
})

// buffers hold the values of pages, and pages before they are compressed.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, pageBytes+pageBytes/8); return &b }}

// maxBuffer limits the buffers that are used again.
const maxBuffer = 4 * pageBytes

// release makes the memory of a buffer available.
func release(buffer []byte) {
	if cap(buffer) > 0 && cap(buffer) <= maxBuffer {
		buffer = buffer[:0]
		buffers.Put(&buffer)
	}
}
