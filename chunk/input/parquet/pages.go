package parquet

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// pageHeader is what precedes the bytes of a page, as far as it is used here.
type pageHeader struct {
	kind     int32
	unpacked int64
	packed   int64
	summed   bool
	sum      uint32 // CRC-32, if there is one
	values   int64
	encoding int32
	// Of a page of version 1: how levels are encoded.
	defEncoding, repEncoding int32
	// Of a page of version 2: the bytes of levels, and whether values are not compressed.
	defBytes, repBytes int64
	plain              bool
}

const (
	// maxPage limits what one page takes in memory. Writers make pages of 1 MiB, unless a
	// single value is larger.
	maxPage = 1 << 30
	// smallPage is always accepted: some writers count the bytes of a column wrongly.
	smallPage = 64 << 20
	// headerBytes is how much of a page to read at first for its header.
	headerBytes = 4 << 10
	// maxHeader limits a header, which may contain the smallest and largest values.
	maxHeader = 64 << 20
)

// maxPageValues limits the levels of a page, of which a few bytes can stand for any number.
// It is a variable so that tests can lower it.
var maxPageValues int64 = 1 << 26

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
		if !errors.Is(err, parquet.ErrShort) || size == end-at || size >= maxHeader {
			return h, length, err
		}
	}
}

func parsePageHeader(data []byte) (h pageHeader, length int64, err error) {
	p := parquet.PageHeader{Kind: -1}
	n, err := parquet.Unmarshal(data, &p)
	h = pageHeader{kind: p.Kind, unpacked: int64(p.Unpacked), packed: int64(p.Packed)}
	if p.Sum != nil {
		h.summed, h.sum = true, uint32(*p.Sum)
	}
	switch {
	case p.Kind == parquet.DataPage && p.Data != nil:
		h.values, h.encoding = int64(p.Data.Values), p.Data.Encoding
		h.defEncoding, h.repEncoding = p.Data.DefinitionEncoding, p.Data.RepetitionEncoding
	case p.Kind == parquet.DictionaryPage && p.Dictionary != nil:
		h.values = int64(p.Dictionary.Values)
	case p.Kind == parquet.DataPageV2 && p.DataV2 != nil:
		h.values, h.encoding = int64(p.DataV2.Values), p.DataV2.Encoding
		h.defBytes, h.repBytes = int64(p.DataV2.DefinitionBytes), int64(p.DataV2.RepetitionBytes)
		h.plain = p.DataV2.Compressed != nil && !*p.DataV2.Compressed
	}
	return h, int64(n), err
}

// check rejects a page that does not fit in the rest of its chunk, or is too large.
func (h *pageHeader) check(c *parquet.ColumnMeta, left, rest int64) error {
	switch {
	case h.kind < parquet.DataPage || h.kind > parquet.DataPageV2:
		return fmt.Errorf("unknown kind %d", h.kind)
	case h.packed < 0 || h.packed > rest:
		return fmt.Errorf("%d bytes, but the column has only %d more", h.packed, rest)
	case h.unpacked < 0 || h.unpacked > maxPage || h.unpacked > max(c.Unpacked, smallPage):
		return fmt.Errorf("%d bytes uncompressed, more than the column has", h.unpacked)
	case h.values < 0 || h.values > maxPageValues:
		return fmt.Errorf("%d values", h.values)
	case h.kind != parquet.DictionaryPage && h.values > left:
		return fmt.Errorf("%d values, but the column has only %d more", h.values, left)
	case h.defBytes < 0 || h.repBytes < 0 || h.defBytes > h.packed || h.repBytes > h.packed-h.defBytes || h.defBytes+h.repBytes > h.unpacked:
		return fmt.Errorf("%d and %d bytes of levels in a page of %d", h.defBytes, h.repBytes, h.packed)
	}
	return nil
}
