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
