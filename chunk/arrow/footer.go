package arrow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ReadFooter reads the footer of a file.
func ReadFooter(r io.ReaderAt, size int64) (Table, error) {
	const begin, end = int64(Align), int64(4 + len(Magic))
	if size < begin+end {
		return Table{}, errors.New("the file is truncated: it has no footer")
	}
	tail := make([]byte, end)
	if _, err := r.ReadAt(tail, size-end); err != nil && !errors.Is(err, io.EOF) {
		return Table{}, err
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	switch {
	case !bytes.HasSuffix(tail, []byte(Magic)):
		return Table{}, errors.New("the file is truncated: it does not end with " + Magic)
	case length > size-begin-end:
		return Table{}, fmt.Errorf("the file is damaged: its footer has %d bytes", length)
	}
	data := make([]byte, length)
	if _, err := r.ReadAt(data, size-end-length); err != nil && !errors.Is(err, io.EOF) {
		return Table{}, err
	}
	return Root(data), nil
}
