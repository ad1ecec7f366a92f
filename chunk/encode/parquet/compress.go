package parquet

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// encoder compresses whole blocks, and goroutines may share it. The result depends on the
// block alone. It uses the fastest level: the default one takes twice the time and saves at
// most a tenth of text, and the digits of floats hardly compress at all.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constant
	}
	return e
})

func compress(page []byte) []byte { return encoder().EncodeAll(page, nil) }
