package fetch

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// watched notes when bytes arrive.
type watched struct {
	io.Reader
	timing *timing
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timing.received()
	}
	return n, err
}

// maxDrained is how much of a body without use is read to keep the connection.
const maxDrained = 16 << 10

func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, maxDrained) }

// receive reads the file from a response.
func receive(ctx context.Context, i *Item, u *url.URL, response *http.Response, body io.Reader) attempt {
	var err error
	switch encoding := strings.ToLower(strings.TrimSpace(response.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		err = i.contents.read(body, response.ContentLength)
	case "gzip", "x-gzip":
		err = i.contents.readGzip(body)
	default:
		return attempt{failure: failed("%s sends the file with the unknown encoding %q", u.Host, encoding)}
	}
	var large *http.MaxBytesError
	var corrupt flate.CorruptInputError
	switch failure := fault.As(err); {
	case err == nil, failure != nil:
		return attempt{failure: failure}
	case errors.As(err, &large):
		return attempt{failure: i.contents.tooLarge()}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return attempt{failure: failed("%s sends damaged gzip", u.Host)}
	}
	return broken(ctx, u, err)
}

// readGzip reads a compressed file. Neither its size nor its compressed size may exceed
// the limit.
func (c *contents) readGzip(body io.Reader) error {
	decoder, err := gzip.NewReader(http.MaxBytesReader(nil, io.NopCloser(body), c.limit()))
	if err != nil {
		return err
	}
	return c.read(decoder, -1)
}
