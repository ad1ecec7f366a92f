package arrow

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/tree"
)

// Arrow is the format of Arrow IPC files and streams.
var Arrow = format.Format{
	Name: "arrow", Endings: []string{"arrows", "feather"}, Rows: true,
	Match: func(head []byte, _ bool) bool { return isFile(head) || isStream(head) },
	Columns: func(r io.Reader) []format.Column {
		s, err := newStream(r, format.Options{})
		if err != nil {
			return nil // which is reported when the stream is read
		}
		return s.decoder.columns()
	},
	Open: func(f format.File, o format.Options) (format.Table, error) {
		return OpenFile(f, f.Size(), o)
	},
	Stream: func(_ context.Context, r io.Reader, o format.Options) (format.Lines, error) {
		lines, err := newStream(r, o)
		if err != nil {
			return format.Lines{}, err
		}
		return format.Lines{ReadCloser: io.NopCloser(lines), First: 1, Blobs: lines.beside.Next}, nil
	},
}

func isFile(head []byte) bool { return bytes.HasPrefix(head, []byte(arrow.Magic)) }

// isStream recognizes the beginning of a message of some length.
func isStream(head []byte) bool {
	return len(head) >= 8 && binary.LittleEndian.Uint32(head) == arrow.Continuation && int32(binary.LittleEndian.Uint32(head[4:])) > 0
}

// fail ends decoding.
func fail(format string, args ...any) { tree.Fail(format, args...) }
