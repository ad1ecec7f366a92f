package parallel

import "github.com/gpurun/gpurun/chunk/input/format"

// Beside collects the values beside lines.
type Beside struct {
	Rows [][]format.Blob
	Size int // bytes
	data []byte
}

// Next begins the next row, which has this many values. They are null until they are set.
func (b *Beside) Next(values int) {
	if values > 0 {
		b.Rows = append(b.Rows, make([]format.Blob, values))
	}
}

// Set sets the bytes or the path of a value of the last row to a copy of data.
func (b *Beside) Set(place int, kind format.BlobKind, data []byte) {
	if cap(b.data)-len(b.data) < len(data) {
		b.data = make([]byte, 0, max(len(data), BlockBytes))
	}
	at := len(b.data)
	b.data = append(b.data, data...)
	b.Size += len(data)
	blob := &b.Rows[len(b.Rows)-1][place]
	blob.Kind |= kind
	switch kind {
	case format.BytesBlob:
		blob.Data = b.data[at:len(b.data):len(b.data)]
	case format.PathBlob:
		blob.Path = b.data[at:len(b.data):len(b.data)]
	}
}
