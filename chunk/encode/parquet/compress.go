package parquet

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// newEncoder returns an encoder for whole blocks, which goroutines may share. The result
// depends on the block alone.
func newEncoder(level zstd.EncoderLevel) func() *zstd.Encoder {
	return sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false))
		if err != nil {
			panic(err) // the options are constant
		}
		return e
	})
}

var (
	textEncoder = newEncoder(zstd.SpeedDefault)
	// The digits of floats hardly compress, so more effort is wasted.
	floatEncoder = newEncoder(zstd.SpeedFastest)
)

func compress(t Type, page []byte) []byte {
	if t = t.element(); t == Float32 || t == Float64 {
		return floatEncoder().EncodeAll(page, nil)
	}
	return textEncoder().EncodeAll(page, nil)
}
