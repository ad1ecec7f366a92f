package encode

import "io"

// MaxEncoders is how many units should be encoded at a time at most: each takes memory, and
// more would outrun any disk.
const MaxEncoders = 16

// Codec encodes and decodes units. It is safe for concurrent use.
type Codec interface {
	// Encode writes one unit as a frame of its own. size is the unit's, or -1 if unknown. The bytes that it
	// writes depend on those that it reads, and on nothing else. It reads the unit once,
	// and keeps neither r nor w.
	Encode(w io.Writer, r io.Reader, size int64) error
	// Decode returns a reader of the lines in a file of frames. Closing it does not close
	// r. A damaged or truncated frame is an error of Read.
	Decode(r io.Reader) (io.ReadCloser, error)
}
