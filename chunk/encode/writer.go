package encode

import (
	"bytes"
	"io"
)

// UnitBytes is the size of a unit before encoding: it ends with the first line that brings it
// there.
const UnitBytes = 4 << 20

// heldBytes is how much of a unit is held in memory. A unit is longer only if a line is. It is
// a variable so that tests can lower it.
var heldBytes = 64 << 20

// Writer encodes a stream of lines in units, one after another.
type Writer struct {
	to    io.Writer
	codec Codec
	held  bytes.Buffer
	// long gets the rest of a unit that is too long to be held; done its outcome.
	long    *io.PipeWriter
	done    chan error
	written bool // a unit
}

// NewWriter returns a Writer. Close it to write the last unit; that does not close to.
func NewWriter(to io.Writer, codec Codec) *Writer { return &Writer{to: to, codec: codec} }

// Write takes lines, or pieces of lines.
func (w *Writer) Write(data []byte) (n int, err error) {
	for len(data) > 0 && err == nil {
		end, ends := w.unitEnd(data)
		if w.long != nil {
			_, err = w.long.Write(data[:end])
		} else {
			w.held.Write(data[:end])
		}
		n += end
		data = data[end:]
		switch {
		case err != nil:
		case ends:
			err = w.endUnit()
		case w.long == nil && w.held.Len() > heldBytes:
			w.begin()
		}
	}
	return n, err
}

// unitEnd returns how much of data belongs to the current unit, and whether the unit ends
// there.
func (w *Writer) unitEnd(data []byte) (int, bool) {
	from := max(0, UnitBytes-w.held.Len()-1)
	if w.long != nil {
		from = 0
	}
	if from < len(data) {
		if i := bytes.IndexByte(data[from:], '\n'); i >= 0 {
			return from + i + 1, true
		}
	}
	return len(data), false
}

// begin starts to encode a unit that is too long to be held.
func (w *Writer) begin() {
	in, out := io.Pipe()
	w.long, w.done = out, make(chan error, 1)
	first := bytes.Clone(w.held.Bytes())
	w.held.Reset()
	go func() {
		err := w.codec.Encode(w.to, io.MultiReader(bytes.NewReader(first), in), -1)
		in.CloseWithError(err)
		w.done <- err
	}()
}

func (w *Writer) endUnit() error {
	w.written = true
	if w.long == nil {
		size := int64(w.held.Len())
		return w.codec.Encode(w.to, &w.held, size)
	}
	w.long.Close()
	w.long = nil
	return <-w.done
}

// Close writes the last unit. A file of no lines gets an empty one.
func (w *Writer) Close() error {
	if w.written && w.held.Len() == 0 && w.long == nil {
		return nil
	}
	return w.endUnit()
}
