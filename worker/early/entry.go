package early

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// encode appends the answer to dst.
func (a Answer) encode(dst []byte) []byte {
	dst = append(dst, a.Verdict)
	dst = binary.AppendUvarint(dst, uint64(max(a.Nulls, 0)))
	dst = binary.AppendUvarint(dst, uint64(len(a.Lines)))
	for _, line := range a.Lines {
		dst = binary.AppendUvarint(dst, uint64(len(line)))
		dst = append(dst, line...)
	}
	return dst
}

var errDamaged = errors.New("an entry of the early log is damaged")

// decode reads an answer. The lines share the memory of body.
func decode(body []byte) (a Answer, err error) {
	if len(body) == 0 {
		return a, errDamaged
	}
	a.Verdict, body = body[0], body[1:]
	next := func() uint64 {
		value, n := binary.Uvarint(body)
		if n <= 0 {
			err = errDamaged
			return 0
		}
		body = body[n:]
		return value
	}
	a.Nulls = int64(next())
	lines := next()
	if err != nil || lines > uint64(len(body)) || a.Nulls < 0 {
		return a, errDamaged
	}
	for range lines {
		length := next()
		if err != nil || length > uint64(len(body)) {
			return a, errDamaged
		}
		a.Lines = append(a.Lines, body[:length:length])
		body = body[length:]
	}
	if len(body) > 0 {
		return a, errDamaged
	}
	return a, nil
}

// each passes the entries of a log to take, up to the first that is incomplete or damaged, or for
// which take returns false.
func each(file io.Reader, take func(number int64, a Answer) bool) {
	in := bufio.NewReaderSize(file, 256<<10)
	for {
		var header [summed]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			return
		}
		length, sum := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[4:])
		var entry bytes.Buffer // grows with what is there, whatever the length claims
		if _, err := io.CopyN(&entry, in, headerSize-summed+int64(length)); err != nil || crc32.Checksum(entry.Bytes(), castagnoli) != sum {
			return
		}
		number := int64(binary.LittleEndian.Uint64(entry.Next(headerSize - summed)))
		if a, err := decode(entry.Bytes()); err != nil || !take(number, a) {
			return
		}
	}
}
