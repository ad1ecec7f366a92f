package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// cursor steps through the values of one column of a row group. At the end of the column,
// and after an error, its value is null with levels 0, which ends every list.
type cursor struct {
	reader  io.ReaderAt
	leaf    leaf
	chunk   *columnChunk
	at, end int64 // the pages that are not read yet
	left    int64 // the values in them, nulls included

	dictionary *values
	// The current page.
	values     *values
	defs, reps []byte // nil: all as large as possible
	count      int    // levels
	level      int    // the current one
	index      int    // the current value, if it is not null
	ended      bool
	err        error

	header, packed, unpacked []byte // memory that is used again
}

func newCursor(r io.ReaderAt, l leaf, c *columnChunk) *cursor {
	cursor := &cursor{reader: r, leaf: l, chunk: c, at: c.begin(), end: c.begin() + c.packed, left: c.values}
	cursor.load()
	return cursor
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
		c.index++
	}
	if c.level++; c.level >= c.count {
		c.load()
	}
}

// load reads the next page that has values.
func (c *cursor) load() {
	c.count, c.level, c.index = 0, 0, 0
	for c.count == 0 {
		if c.left == 0 {
			c.ended = true
			return
		}
		at := c.at
		if err := c.readPage(); err != nil {
			c.ended, c.err = true, fmt.Errorf("page at offset %d: %w", at, err)
			return
		}
	}
}

// readPage reads and decodes the next page.
func (c *cursor) readPage() error {
	if c.at >= c.end {
		return fmt.Errorf("%d of %d values are missing", c.left, c.chunk.values)
	}
	h, length, err := readPageHeader(c.reader, c.at, c.end, &c.header)
	if err != nil {
		return err
	}
	if err := h.check(c.chunk, c.left, c.end-c.at-length); err != nil {
		return err
	}
	c.packed = slices.Grow(c.packed[:0], int(h.packed))[:h.packed]
	if _, err := c.reader.ReadAt(c.packed, c.at+length); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	c.at += length + h.packed
	if h.summed && crc32.ChecksumIEEE(c.packed) != h.sum {
		return errors.New("its checksum is wrong")
	}
	switch h.kind {
	case spec.DictionaryPage:
		return c.decodeDictionary(h)
	case spec.DataPage:
		return c.decodePage(h)
	case spec.DataPageV2:
		return c.decodePageV2(h)
	}
	return nil // an index page
}

func (c *cursor) decodeDictionary(h pageHeader) error {
	data, err := decompress(c.chunk.codec, nil, c.packed, int(h.unpacked))
	if err != nil {
		return err
	}
	if c.chunk.codec == spec.CodecNone {
		data = slices.Clone(data) // its memory will be used again
	}
	c.dictionary, err = c.leaf.decode(spec.EncodingPlain, int(h.values), data, nil)
	return err
}

// decodePage decodes a page of version 1: levels and values are compressed together.
func (c *cursor) decodePage(h pageHeader) (err error) {
	data, err := c.decompress(c.packed, h.unpacked)
	if err != nil {
		return err
	}
	n := int(h.values)
	if c.leaf.maxRep > 0 {
		if h.repEncoding != spec.EncodingRLE {
			return fmt.Errorf("encoding %d of levels is not supported", h.repEncoding)
		}
		if c.reps, data, err = prefixedLevels(c.reps, n, data, c.leaf.maxRep); err != nil {
			return err
		}
	}
	if c.leaf.maxDef > 0 {
		if h.defEncoding != spec.EncodingRLE {
			return fmt.Errorf("encoding %d of levels is not supported", h.defEncoding)
		}
		if c.defs, data, err = prefixedLevels(c.defs, n, data, c.leaf.maxDef); err != nil {
			return err
		}
	}
	return c.decodeValues(h, data)
}

// decodePageV2 decodes a page of version 2: levels come first and are not compressed.
func (c *cursor) decodePageV2(h pageHeader) (err error) {
	n := int(h.values)
	reps, data := c.packed[:h.repBytes], c.packed[h.repBytes:]
	defs, data := data[:h.defBytes], data[h.defBytes:]
	if c.leaf.maxRep > 0 {
		if c.reps, err = levels(c.reps, n, reps, c.leaf.maxRep); err != nil {
			return err
		}
	}
	if c.leaf.maxDef > 0 {
		if c.defs, err = levels(c.defs, n, defs, c.leaf.maxDef); err != nil {
			return err
		}
	}
	if !h.plain && (len(data) > 0 || h.unpacked > h.repBytes+h.defBytes) {
		if data, err = c.decompress(data, h.unpacked-h.repBytes-h.defBytes); err != nil {
			return err
		}
	}
	return c.decodeValues(h, data)
}

func (c *cursor) decompress(packed []byte, size int64) ([]byte, error) {
	data, err := decompress(c.chunk.codec, c.unpacked, packed, int(size))
	if err == nil && c.chunk.codec != spec.CodecNone {
		c.unpacked = data
	}
	return data, err
}

// decodeValues decodes the values of a page whose levels are known.
func (c *cursor) decodeValues(h pageHeader, data []byte) (err error) {
	present := int(h.values)
	if c.leaf.maxDef > 0 {
		present = 0
		for _, def := range c.defs {
			if int(def) == c.leaf.maxDef {
				present++
			}
		}
	}
	if c.values, err = c.leaf.decode(h.encoding, present, data, c.dictionary); err != nil {
		return err
	}
	c.count = int(h.values)
	c.left -= h.values
	return nil
}

// prefixedLevels decodes levels that follow their length, and returns what follows them.
func prefixedLevels(dst []byte, n int, data []byte, most int) (_, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, errRuns
	}
	length := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if uint64(length) > uint64(len(data)) {
		return nil, nil, errRuns
	}
	dst, err = levels(dst, n, data[:length], most)
	return dst, data[length:], err
}

// levels decodes n levels.
func levels(dst []byte, n int, data []byte, most int) ([]byte, error) {
	dst = slices.Grow(dst[:0], n)[:n]
	if _, err := decodeRuns(dst, data, widthOf(most)); err != nil {
		return nil, err
	}
	for _, level := range dst {
		if int(level) > most {
			return nil, errRuns
		}
	}
	return dst, nil
}
