package arrow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/tree"
)

// message is a message without its body.
type message struct {
	kind    int
	version int64
	header  arrow.Table
	body    int64 // its length
	rows    int64 // of a record batch
}

// parse decodes the table of a message.
func parse(data []byte) message {
	root := arrow.Root(data)
	header, _ := root.Table(2)
	m := message{kind: int(root.Int(1, 1, 0)), version: root.Int(0, 2, 0), header: header, body: root.Int(3, 8, 0)}
	if m.kind == arrow.BatchMessage {
		m.rows = header.Int(0, 8, 0)
	}
	if m.body < 0 || m.rows < 0 || m.rows > maxRows {
		fail("a message has %d bytes for %d rows", m.body, m.rows)
	}
	return m
}

// batch returns the description of the record batch in a message, which may be a dictionary.
func (m message) batch() arrow.Table {
	if m.kind != arrow.DictionaryMessage {
		return m.header
	}
	data, _ := m.header.Table(1)
	return data
}

// dictionary returns which dictionary a message has, and whether it is added to what is there.
func (m message) dictionary() (id int64, added bool) { return m.header.Int(0, 8, 0), m.header.Bool(2) }

var (
	errTruncated = errors.New("the file is truncated within a message")
	// errEnd is a message of no length, which ends a stream.
	errEnd = errors.New("a message is empty")
)

// readMessage reads the next message of a stream, without its body; size is how many bytes it has. It
// returns io.EOF at the end of the file, with or without a message that ends the stream. The schema of
// another stream may follow that message, as cat makes such files. Anything else would be lost, so it
// is an error. That includes zeros, which no writer of streams adds.
func readMessage(r io.Reader) (m message, size int64, err error) {
	if m, size, err = readOne(r); err != errEnd {
		return m, size, err
	}
	end := size
	m, size, err = readOne(r)
	switch {
	case err == io.EOF:
		return m, 0, err
	case err == nil && m.kind != arrow.SchemaMessage:
		err = errors.New("it does not begin with a schema")
	}
	if err != nil {
		return m, 0, fmt.Errorf("what follows the end of the stream is not another stream: %w", err)
	}
	return m, end + size, nil
}

// readOne reads the next message, without its body.
func readOne(r io.Reader) (m message, size int64, err error) {
	defer tree.Recovered(&err)
	length, head, err := messageLength(r)
	if err != nil {
		return m, head, err
	}
	data, err := readBytes(r, int64(length))
	if err != nil {
		return m, 0, err
	}
	return parse(data), head + int64(length), nil
}

// messageLength reads what is before the table of a message: its length.
func messageLength(r io.Reader) (length int32, size int64, err error) {
	var word [4]byte
	for size = 4; ; size += 4 {
		if _, err := io.ReadFull(r, word[:]); err != nil {
			if errors.Is(err, io.EOF) && size == 4 {
				return 0, 0, io.EOF
			}
			return 0, 0, truncated(err)
		}
		n := binary.LittleEndian.Uint32(word[:])
		switch {
		case n == 0:
			return 0, size, errEnd
		case n == arrow.Continuation && size == 4: // files from before 2019 do not have it
		case int32(n) < 0:
			return 0, 0, errors.New("the file is damaged: a message has no length")
		default:
			return int32(n), size, nil
		}
	}
}

// readBytes reads a number of bytes. It allocates memory only as they arrive.
func readBytes(r io.Reader, n int64) ([]byte, error) {
	const step = 1 << 20
	if n <= step {
		data := make([]byte, n)
		_, err := io.ReadFull(r, data)
		return data, truncated(err)
	}
	var data bytes.Buffer
	data.Grow(step)
	_, err := io.CopyN(&data, r, n)
	return data.Bytes(), truncated(err)
}

// truncated names an end that comes too early.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}
