package encode

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// ZstdLevel is the default of the zstd program.
const ZstdLevel = 3

// zstdWindow is how far back a match may be, which bounds the memory of readers.
const zstdWindow = 4 << 20

// zstdCodec writes one zstd frame with a checksum per unit.
type zstdCodec struct {
	idle chan *zstd.Encoder // each has buffers of several windows
}

func (c zstdCodec) Encode(w io.Writer, r io.Reader, size int64) error {
	z, err := c.encoder()
	if err != nil {
		return err
	}
	defer c.keep(z)
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

func (c zstdCodec) encoder() (*zstd.Encoder, error) {
	select {
	case z := <-c.idle:
		return z, nil
	default:
	}
	// One goroutine per frame: how blocks are shared among several must not matter.
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(ZstdLevel)),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow), zstd.WithZeroFrames(true))
}

func (c zstdCodec) keep(z *zstd.Encoder) {
	z.Reset(nil)
	select {
	case c.idle <- z:
	default:
	}
}

func (zstdCodec) Decode(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}
