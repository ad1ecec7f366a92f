package parquet

import (
	"errors"
	"io"

	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// pageHeader is what precedes the bytes of a page.
type pageHeader struct {
	parquet.PageHeader
	values   int64
	encoding int32
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
func readPageHeader(r io.ReaderAt, at, end int64, buffer *[]byte) (h pageHeader, length int64) {
	for size := int64(headerBytes); ; size *= 4 {
		size = min(size, end-at)
		if int64(cap(*buffer)) < size {
			*buffer = make([]byte, size)
		}
		data := (*buffer)[:size]
		if _, err := r.ReadAt(data, at); err != nil && !errors.Is(err, io.EOF) {
			tree.Fail("%w", err)
		}
		h.PageHeader = parquet.PageHeader{Kind: -1}
		n, err := parquet.Unmarshal(data, &h.PageHeader)
		switch {
		case err == nil:
			return h, int64(n)
		case !errors.Is(err, parquet.ErrShort) || size == end-at || size >= maxHeader:
			tree.Fail("%w", err)
		}
	}
}

// check rejects a page that does not fit in the rest of its chunk, or is too large.
func (h *pageHeader) check(c *parquet.ColumnMeta, left, rest int64) {
	packed, unpacked := int64(h.Packed), int64(h.Unpacked)
	var levels [2]int64
	switch {
	case h.Kind == parquet.DataPage && h.Data != nil:
		h.values, h.encoding = int64(h.Data.Values), h.Data.Encoding
	case h.Kind == parquet.DictionaryPage && h.Dictionary != nil:
		h.values = int64(h.Dictionary.Values)
	case h.Kind == parquet.DataPageV2 && h.DataV2 != nil:
		h.values, h.encoding = int64(h.DataV2.Values), h.DataV2.Encoding
		levels = [2]int64{int64(h.DataV2.DefinitionBytes), int64(h.DataV2.RepetitionBytes)}
	case h.Kind != parquet.IndexPage:
		tree.Fail("unknown kind %d", h.Kind)
	}
	switch {
	case packed < 0 || packed > rest:
		tree.Fail("%d bytes, but the column has only %d more", packed, rest)
	case unpacked < 0 || unpacked > maxPage || unpacked > max(c.Unpacked, smallPage):
		tree.Fail("%d bytes uncompressed, more than the column has", unpacked)
	case h.values < 0 || h.values > maxPageValues:
		tree.Fail("%d values", h.values)
	case h.Kind != parquet.DictionaryPage && h.values > left:
		tree.Fail("%d values, but the column has only %d more", h.values, left)
	case levels[0] < 0 || levels[1] < 0 || levels[0]+levels[1] > min(packed, unpacked):
		tree.Fail("%d and %d bytes of levels in a page of %d", levels[0], levels[1], packed)
	}
}
