package encode

import (
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// GzipLevel is the default of the gzip program.
const GzipLevel = 6

// gzipCodec writes one gzip member per unit, without name or time.
type gzipCodec struct{}

var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, GzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func (gzipCodec) Encode(w io.Writer, r io.Reader, _ int64) error {
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(w)
	if _, err := io.Copy(z, r); err != nil {
		return err
	}
	return z.Close()
}

func (gzipCodec) Decode(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }
