package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// cursor steps through the values of one column of a row group. At the end of the column,
// and after an error, its value is null with levels 0, which ends every list.
type cursor struct {
	reader  io.ReaderAt
	leaf    leaf
	chunk   *parquet.ColumnMeta
	at, end int64 // the pages that are not read yet
	left    int64 // the values in them, nulls included

	dictionary *values
	// The current page.
	page             int64 // its offset
	values           *values
	defRuns, repRuns runs
	more             int // levels that are not decoded
	// The current block of its levels.
	defs, reps []byte // nil: all as large as possible
	count      int    // levels
	level      int    // the current one
	index      int    // the current value in the page, if it is not null
	ended      bool
	err        error

	buffers         *buffers
	memory          *parallel.Share // of the row group
	reserved        int64           // of it
	dictionaryBytes int64
}

// buffers hold the pages of a column. The next row group uses them again: the memory of a page of
// images costs more to allocate and clear than its bytes cost to read.
type buffers struct{ header, packed, unpacked, dictionary []byte }

// newCursor returns a cursor before the first value of a column. b is nil if there are no buffers to
// use again.
func newCursor(r io.ReaderAt, l leaf, c *parquet.ColumnMeta, memory *parallel.Share, b *buffers) *cursor {
	if b == nil {
		b = &buffers{}
	}
	cursor := &cursor{reader: r, leaf: l, chunk: c, at: c.Begin(), end: c.Begin() + c.Packed, left: c.Values, memory: memory, buffers: b}
	cursor.load()
	return cursor
}

// sized returns n bytes, in the same memory if that is large enough.
func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// def and rep return the levels of the current value.
func (c *cursor) def() int {
	if c.ended {
		return 0
	}
	if c.defs == nil {
		return c.leaf.maxDef
	}
	return int(c.defs[c.level])
}

func (c *cursor) rep() int {
	if c.ended || c.reps == nil {
		return 0
	}
	return int(c.reps[c.level])
}

// value returns the current value, if it is not null. It is valid until next.
func (c *cursor) value() (v []byte, ok bool) {
	if c.ended || c.defs != nil && int(c.defs[c.level]) != c.leaf.maxDef {
		return nil, false
	}
	return c.values.at(c.index), true
}

// next steps to the next value.
func (c *cursor) next() {
	if c.ended {
		return
	}
	if c.defs == nil || int(c.defs[c.level]) == c.leaf.maxDef {
		if c.index++; !c.values.reached(c.index) {
			if c.try(func() { c.values.decodeBlock(c.index) }); c.ended {
				return
			}
		}
	}
	if c.level++; c.level >= c.count {
		c.load()
	}
}

// fail ends the column.
func (c *cursor) fail(err error) {
	c.ended, c.err = true, fmt.Errorf("page at offset %d: %w", c.page, err)
}

// try ends the column if something cannot be decoded.
func (c *cursor) try(decode func()) {
	var err error
	defer func() {
		if err != nil {
			c.fail(err)
		}
	}()
	defer tree.Recovered(&err)
	decode()
}

// load decodes the next block of levels, of the next page that has values if need be.
func (c *cursor) load() { c.try(c.loadBlock) }

func (c *cursor) loadBlock() {
	for c.more == 0 {
		if c.left == 0 {
			c.ended = true
			return
		}
		c.page = c.at
		c.readPage()
		c.index = 0
	}
	c.count, c.level = min(c.more, blockValues), 0
	c.more -= c.count
	if c.leaf.maxRep > 0 {
		c.reps = levels(c.reps, &c.repRuns, c.count, c.leaf.maxRep)
	}
	if c.leaf.maxDef > 0 {
		c.defs = levels(c.defs, &c.defRuns, c.count, c.leaf.maxDef)
	}
}

// readPage reads and decodes the next page.
func (c *cursor) readPage() {
	if c.at >= c.end {
		tree.Fail("%d of %d values are missing", c.left, c.chunk.Values)
	}
	h, length := readPageHeader(c.reader, c.at, c.end, &c.buffers.header)
	h.check(c.chunk, c.left, c.end-c.at-length)
	c.reserve(h)
	packed := sized(c.buffers.packed, int(h.Packed))
	c.buffers.packed = packed
	if _, err := c.reader.ReadAt(packed, c.at+length); err != nil && !errors.Is(err, io.EOF) {
		tree.Fail("%w", err)
	}
	c.at += length + int64(h.Packed)
	if h.Sum != nil && crc32.ChecksumIEEE(packed) != uint32(*h.Sum) {
		tree.Fail("its checksum is wrong")
	}
	switch h.Kind { // or it is an index page
	case parquet.DictionaryPage:
		data := c.decompress(&c.buffers.dictionary, packed, h.Unpacked)
		c.dictionary = c.leaf.decode(parquet.EncodingPlain, int(h.values), data, nil, c.reserveMore)
	case parquet.DataPage:
		c.decodePage(h, packed)
	case parquet.DataPageV2:
		c.decodePageV2(h, packed)
	}
}

// cursorBytes is what a cursor takes besides its pages: mostly blocks of levels and indexes.
const cursorBytes = 8 << 10

// reserve reserves the memory for a page and its values, and releases what the page before it
// needed.
func (c *cursor) reserve(h pageHeader) {
	b := c.buffers
	need := cursorBytes + int64(cap(b.header)) + c.dictionaryBytes + int64(max(cap(b.packed), int(h.Packed)))
	decoded := c.leaf.bytesFor(h.encoding, int(h.values))
	if h.Kind == parquet.DictionaryPage {
		c.dictionaryBytes = int64(max(cap(b.dictionary), int(h.Unpacked))) + c.leaf.bytesFor(parquet.EncodingPlain, int(h.values))
		need, decoded = need+c.dictionaryBytes, 0
	} else {
		need += int64(max(cap(b.unpacked), int(h.Unpacked)))
	}
	c.reserveMore(need + decoded - c.reserved)
}

func (c *cursor) reserveMore(n int64) {
	if err := c.memory.Add(n); err != nil {
		tree.Fail("%w", err)
	}
	c.reserved += n
}

// decodePage decodes a page of version 1: levels and values are compressed together.
func (c *cursor) decodePage(h pageHeader, packed []byte) {
	data := c.decompress(&c.buffers.unpacked, packed, h.Unpacked)
	for _, level := range []struct {
		most     int
		encoding int32
		runs     *runs
	}{{c.leaf.maxRep, h.Data.RepetitionEncoding, &c.repRuns}, {c.leaf.maxDef, h.Data.DefinitionEncoding, &c.defRuns}} {
		switch {
		case level.most == 0:
		case level.encoding != parquet.EncodingRLE:
			tree.Fail("encoding %d of levels is not supported", level.encoding)
		default:
			level.runs.data, data = prefixed(data)
		}
	}
	c.decodeValues(h, data)
}

// decodePageV2 decodes a page of version 2: levels come first and are not compressed.
func (c *cursor) decodePageV2(h pageHeader, packed []byte) {
	reps := h.DataV2.RepetitionBytes
	levels := reps + h.DataV2.DefinitionBytes
	data := packed[levels:]
	c.repRuns.data, c.defRuns.data = packed[:reps], packed[reps:levels]
	plain := h.DataV2.Compressed != nil && !*h.DataV2.Compressed
	if !plain && (len(data) > 0 || h.Unpacked > levels) {
		data = c.decompress(&c.buffers.unpacked, data, h.Unpacked-levels)
	}
	c.decodeValues(h, data)
}

// decompress decompresses a page into a buffer.
func (c *cursor) decompress(buffer *[]byte, packed []byte, size int32) []byte {
	data, err := decompress(c.chunk.Codec, *buffer, packed, int(size))
	if err != nil {
		tree.Fail("%w", err)
	}
	*buffer = data
	return data
}

// decodeValues decodes the values of a page. The data of its levels is known.
func (c *cursor) decodeValues(h pageHeader, data []byte) {
	n := int(h.values)
	c.repRuns = runs{data: c.repRuns.data, width: widthOf(c.leaf.maxRep), left: n}
	c.defRuns = runs{data: c.defRuns.data, width: widthOf(c.leaf.maxDef), left: n}
	present := n
	if c.leaf.maxDef > 0 {
		present = c.defRuns.occurrences(byte(c.leaf.maxDef))
	}
	c.values = c.leaf.decode(h.encoding, present, data, c.dictionary, c.reserveMore)
	c.more = n
	c.left -= h.values
}

// prefixed returns data that follows its length, and what follows it.
func prefixed(data []byte) (_, rest []byte) {
	intact(len(data) >= 4)
	length := binary.LittleEndian.Uint32(data)
	data = data[4:]
	intact(uint64(length) <= uint64(len(data)))
	return data[:length], data[length:]
}

// levels decodes the next n levels.
func levels(dst []byte, from *runs, n, most int) []byte {
	dst = slices.Grow(dst[:0], n)[:n]
	readRuns(from, dst)
	for _, level := range dst {
		intact(int(level) <= most)
	}
	return dst
}
