package early

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 256<<10) }

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

// rangeOf returns the range of the records that a log may have entries for. known is false if its
// first entry does not hold the range.
func rangeOf(file io.ReaderAt) (first, end int64, known bool) {
	var entry [headerSize + 1 + 8]byte
	if _, err := file.ReadAt(entry[:], 0); err != nil {
		return 0, 0, false
	}
	first, body := int64(binary.LittleEndian.Uint64(entry[8:])), entry[headerSize:]
	if binary.LittleEndian.Uint32(entry[:]) != uint32(len(body)) || body[0] != rangeVerdict || sum(first, body) != binary.LittleEndian.Uint32(entry[4:]) {
		return 0, 0, false
	}
	return first, int64(binary.LittleEndian.Uint64(body[1:])), true
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
