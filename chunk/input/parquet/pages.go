package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// pageHeader is what precedes the bytes of a page, as far as it is used here.
type pageHeader struct {
	kind     int64
	unpacked int64
	packed   int64
	values   int64
	levels   int64 // bytes of uncompressed levels, in a page of version 2
	plain    bool  // a page of version 2 that is not compressed
}

// The kinds of pages.
const (
	dataPage       = 0
	indexPage      = 1
	dictionaryPage = 2
	dataPageV2     = 3
)

const (
	// maxPage limits what one page takes in memory. Writers make pages of 1 MiB, unless a
	// single value is larger.
	maxPage = 1 << 30
	// maxPageValues limits the levels of a page, of which a few bytes can stand for any
	// number.
	maxPageValues = 1 << 26
	// smallPage is always accepted: some writers count the bytes of a column wrongly.
	smallPage = 64 << 20
	// headerBytes is how much of a page to read at first for its header.
	headerBytes = 4 << 10
	// maxHeader limits a header, which may contain the smallest and largest values.
	maxHeader = 64 << 20
)

// checkPages reads the headers of all pages of a column chunk and rejects one whose sizes
// do not fit.
func checkPages(r io.ReaderAt, c *columnChunk) error {
	at, end := c.begin(), c.begin()+c.packed
	values := int64(0)
	var buffer []byte
	for values < c.values {
		if at >= end {
			return fmt.Errorf("%d of %d values are missing", c.values-values, c.values)
		}
		header, length, err := readPageHeader(r, at, end, &buffer)
		if err != nil {
			return fmt.Errorf("page at offset %d: %w", at, err)
		}
		if err := header.check(c, end-at-length); err != nil {
			return fmt.Errorf("page at offset %d: %w", at, err)
		}
		if c.codec == codecSnappy {
			if err := checkSnappy(r, at+length, header); err != nil {
				return fmt.Errorf("page at offset %d: %w", at, err)
			}
		}
		at += length + header.packed
		if header.kind == dataPage || header.kind == dataPageV2 {
			values += header.values
		}
	}
	return nil
}

// readPageHeader reads the header at an offset and returns its length.
func readPageHeader(r io.ReaderAt, at, end int64, buffer *[]byte) (h pageHeader, length int64, err error) {
	for size := int64(headerBytes); ; size *= 4 {
		size = min(size, end-at)
		if int64(cap(*buffer)) < size {
			*buffer = make([]byte, size)
		}
		data := (*buffer)[:size]
		if _, err := r.ReadAt(data, at); err != nil && !errors.Is(err, io.EOF) {
			return h, 0, err
		}
		h, length, err = parsePageHeader(data)
		if !errors.Is(err, errShort) || size == end-at || size >= maxHeader {
			return h, length, err
		}
	}
}

func parsePageHeader(data []byte) (h pageHeader, length int64, err error) {
	r := &thriftReader{data: data}
	h.kind = -1
	r.fields(func(id int64, kind byte) bool {
		switch {
		case id == 1:
			h.kind = r.integer(kind)
		case id == 2:
			h.unpacked = r.integer(kind)
		case id == 3:
			h.packed = r.integer(kind)
		case (id == 5 || id == 7 || id == 8) && kind == thriftStruct:
			h.readCounts(r, id == 8)
		default:
			return false
		}
		return true
	})
	return h, int64(r.at), r.err
}

// readCounts reads the struct of a page's kind. All begin with the number of values.
func (h *pageHeader) readCounts(r *thriftReader, v2 bool) {
	r.fields(func(id int64, kind byte) bool {
		switch {
		case id == 1:
			h.values = r.integer(kind)
		case v2 && (id == 5 || id == 6):
			n := r.integer(kind)
			if n < 0 || n > maxPage {
				r.fail(errThrift)
			}
			h.levels += n
		case v2 && id == 7:
			h.plain = kind == thriftFalse
			return false
		default:
			return false
		}
		return true
	})
}

// check rejects a page that does not fit in the rest of its chunk, or is too large.
func (h *pageHeader) check(c *columnChunk, rest int64) error {
	switch {
	case h.kind < dataPage || h.kind > dataPageV2:
		return fmt.Errorf("unknown kind %d", h.kind)
	case h.packed < 0 || h.packed > rest:
		return fmt.Errorf("%d bytes, but the column has only %d more", h.packed, rest)
	case h.unpacked < 0 || h.unpacked > maxPage || h.unpacked > max(c.unpacked, smallPage):
		return fmt.Errorf("%d bytes uncompressed, more than the column has", h.unpacked)
	case h.values < 0 || h.values > maxPageValues:
		return fmt.Errorf("%d values", h.values)
	case h.kind != dictionaryPage && h.values > c.values:
		return fmt.Errorf("%d values, but the column has only %d", h.values, c.values)
	case h.levels > h.packed:
		return fmt.Errorf("%d bytes of levels in a page of %d", h.levels, h.packed)
	case c.codec == codecNone && h.packed != h.unpacked:
		return fmt.Errorf("%d bytes, but %d uncompressed", h.packed, h.unpacked)
	}
	return nil
}

// checkSnappy compares the length at the start of a Snappy block with the header's: the
// decoder allocates it.
func checkSnappy(r io.ReaderAt, at int64, h pageHeader) error {
	if h.plain || h.kind == indexPage || h.packed == h.levels {
		return nil
	}
	data := make([]byte, min(binary.MaxVarintLen64, h.packed-h.levels))
	if _, err := r.ReadAt(data, at+h.levels); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n, width := binary.Uvarint(data); width <= 0 || n > uint64(h.unpacked) {
		return errors.New("the compressed data does not match its header")
	}
	return nil
}
