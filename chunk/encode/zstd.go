package encode

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ZstdLevel is the default of the zstd program.
const ZstdLevel = 3

// zstdWindow is how far back a match may be, which bounds the memory of readers.
const zstdWindow = 4 << 20

// zstdCodec writes one zstd frame with a checksum per unit.
type zstdCodec struct{}

var zstdWriters = sync.Pool{New: func() any {
	// One goroutine per frame: how blocks are shared among several must not matter.
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(ZstdLevel)),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow), zstd.WithZeroFrames(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return w
}}

func (zstdCodec) Encode(w io.Writer, r io.Reader, size int64) error {
	z := zstdWriters.Get().(*zstd.Encoder)
	defer zstdWriters.Put(z)
	defer z.Reset(nil)
	z.ResetContentSize(w, size)
	n, err := z.ReadFrom(r)
	if err == nil && size >= 0 && n != size {
		err = fmt.Errorf("the unit has %d bytes instead of %d", n, size)
	}
	if closed := z.Close(); err == nil {
		err = closed
	}
	return err
}

func (zstdCodec) Decode(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}
