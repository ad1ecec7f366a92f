package columns

import (
	"encoding/binary"
	"errors"
)

// AppendEntry appends the index entry of a line.
func AppendEntry(index []byte, length int64, values bool) []byte {
	entry := uint64(length) << 1
	if values {
		entry |= 1
	}
	return binary.AppendUvarint(index, entry)
}

// Entries returns the number of entries of an index.
func Entries(index []byte) (n int64) {
	for _, b := range index {
		if b < 0x80 { // the last byte of one
			n++
		}
	}
	return n
}

// ErrIndex is returned for an index that no part has.
var ErrIndex = errors.New("the index of a part is damaged")

// NextEntry reads the first entry of an index.
func NextEntry(index []byte) (length int64, values bool, rest []byte, err error) {
	entry, n := binary.Uvarint(index)
	if n <= 0 || entry>>1 == 0 {
		return 0, false, nil, ErrIndex
	}
	return int64(entry >> 1), entry&1 == 1, index[n:], nil
}
