package parquet

import (
	"errors"
	"fmt"
	"io"
)

const (
	// FooterEnd is the length of the footer and the magic after it.
	FooterEnd = 8
	// maxFooter limits the footer. The largest ones in use, of tables with thousands of
	// columns, have tens of megabytes.
	maxFooter = 1 << 30
)

// ReadFooter reads the footer of a file.
func ReadFooter(r io.ReaderAt, size int64) (*FileMetaData, error) {
	if size < int64(len(Magic))+FooterEnd {
		return nil, errors.New("the file is too short to be Parquet")
	}
	end := make([]byte, FooterEnd)
	if _, err := r.ReadAt(end, size-FooterEnd); err != nil {
		return nil, fmt.Errorf("read the footer: %w", err)
	}
	switch string(end[4:]) {
	case Magic:
	case MagicEncrypted:
		return nil, errors.New("the file is encrypted")
	default:
		return nil, errors.New("the file does not end with a Parquet footer; it is truncated or damaged")
	}
	length := int64(end[0]) | int64(end[1])<<8 | int64(end[2])<<16 | int64(end[3])<<24
	if length > maxFooter || length > size-FooterEnd-int64(len(Magic)) {
		return nil, fmt.Errorf("the footer's length, %d bytes, does not fit in the file", length)
	}
	data := make([]byte, length)
	if _, err := r.ReadAt(data, size-FooterEnd-length); err != nil {
		return nil, fmt.Errorf("read the footer: %w", err)
	}
	m := new(FileMetaData)
	n, err := Unmarshal(data, m)
	if err == nil && (m.Encryption != nil || m.FooterKey != nil || n < len(data)) { // what follows is a signature
		err = errors.New("the file is encrypted or signed")
	}
	return m, err
}
