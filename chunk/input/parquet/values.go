package parquet

import (
	"encoding/binary"
	"slices"

	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// values are decoded values, without nulls. A value is bytes: text, or a number as in the
// file, little-endian. A boolean is one byte.
type values struct {
	count   int
	size    int      // bytes of each value in fixed; 0: texts
	fixed   []byte   // values of a fixed size, one after another
	texts   [][]byte // others
	indexes []uint32 // in the dictionary, if there is one
	table   *values  // the dictionary
	// Indexes and booleans of which a few bytes stand for many are decoded a block at a time.
	blocks *runs // nil: all are decoded
	first  int   // number of the first value in the block
}

// at returns a value, which reach has reached. It is valid until the next page is decoded.
func (v *values) at(i int) []byte {
	i -= v.first
	if v.table != nil {
		return v.table.at(int(v.indexes[i]))
	}
	if v.size == 0 {
		return v.texts[i]
	}
	return v.fixed[i*v.size : (i+1)*v.size]
}

// reached reports whether a value is decoded, or the end.
func (v *values) reached(i int) bool {
	return v.blocks == nil || i < v.first+max(len(v.indexes), len(v.fixed)) || i >= v.count
}

// decodeBlock decodes the block that begins with a value.
func (v *values) decodeBlock(i int) {
	v.first = i
	n := min(v.blocks.left, blockValues)
	if v.table == nil {
		v.fixed = slices.Grow(v.fixed[:0], n)[:n]
		readRuns(v.blocks, v.fixed)
		return
	}
	v.indexes = slices.Grow(v.indexes[:0], n)[:n]
	readRuns(v.blocks, v.indexes)
	for _, index := range v.indexes {
		if uint64(index) >= uint64(v.table.count) {
			tree.Fail("value %d of a dictionary of %d", index, v.table.count)
		}
	}
}

// leaf is a column as far as its decoding is concerned.
type leaf struct {
	physical int32
	length   int32 // of a fixed-length value
	maxDef   int
	maxRep   int
}

// size returns the size of a value, 0 if it is not fixed.
func (l *leaf) size() int { return parquet.Size(l.physical, l.length) }

// bytesFor returns how many bytes n decoded values take besides the page that they are in.
func (l *leaf) bytesFor(encoding int32, n int) int64 {
	const number, text = 8, 24 // a length or a number while it is decoded, and where a text is
	switch encoding {
	case parquet.EncodingPlain:
		switch {
		case l.physical == parquet.PhysicalBool:
			return int64(n)
		case l.size() == 0:
			return int64(n) * text
		}
	case parquet.EncodingDelta:
		return int64(n) * int64(number+l.size())
	case parquet.EncodingDeltaLength, parquet.EncodingDeltaText:
		return int64(n) * (2*number + text)
	case parquet.EncodingSplit:
		return int64(n) * int64(l.size())
	}
	return 0
}

// decode decodes n values. The caller has reserved the memory of bytesFor; reserve asks for more.
func (l *leaf) decode(encoding int32, n int, data []byte, dictionary *values, reserve func(int64)) *values {
	v := &values{count: n, size: l.size()}
	switch {
	case n == 0:
	case encoding == parquet.EncodingPlain:
		l.decodePlain(v, data)
	case encoding == parquet.EncodingPlainDictionary || encoding == parquet.EncodingRLEDictionary:
		decodeIndexes(v, data, dictionary)
	case encoding == parquet.EncodingRLE && l.physical == parquet.PhysicalBool:
		decodeBooleans(v, data)
	case encoding == parquet.EncodingDelta && (l.physical == parquet.PhysicalInt32 || l.physical == parquet.PhysicalInt64):
		decodeIntegers(v, data)
	case encoding == parquet.EncodingDeltaLength && l.physical == parquet.PhysicalBytes:
		v.texts, _ = decodeDeltaLengths(n, data)
	case encoding == parquet.EncodingDeltaText && (l.physical == parquet.PhysicalBytes || l.physical == parquet.PhysicalFixed):
		decodeTexts(v, data, reserve)
	case encoding == parquet.EncodingSplit && v.size > 1:
		decodeSplit(v, data)
	default:
		tree.Fail("encoding %d is not supported for this type", encoding)
	}
	return v
}

func (l *leaf) decodePlain(v *values, data []byte) {
	if l.physical == parquet.PhysicalBool {
		intact(len(data) >= (v.count+7)/8)
		v.fixed = make([]byte, v.count)
		unpack(v.fixed, data, 0, 1)
		return
	}
	if v.size > 0 {
		intact(len(data)/v.size >= v.count)
		v.fixed = data[:v.count*v.size]
		return
	}
	intact(len(data)/4 >= v.count)
	v.texts = make([][]byte, v.count)
	for i := range v.texts {
		v.texts[i], data = prefixed(data)
	}
}

func decodeIndexes(v *values, data []byte, dictionary *values) {
	intact(dictionary != nil && len(data) > 0 && data[0] <= 32)
	v.table, v.blocks = dictionary, &runs{data: data[1:], width: uint(data[0]), left: v.count}
	v.decodeBlock(0)
}

func decodeBooleans(v *values, data []byte) {
	intact(len(data) >= 4)
	v.blocks = &runs{data: data[4:], width: 1, left: v.count}
	v.decodeBlock(0)
}

func decodeIntegers(v *values, data []byte) {
	numbers, _ := decodeDeltas(v.count, data)
	v.fixed = make([]byte, 0, v.count*v.size)
	for _, n := range numbers {
		if v.size == 4 {
			v.fixed = binary.LittleEndian.AppendUint32(v.fixed, uint32(n))
		} else {
			v.fixed = binary.LittleEndian.AppendUint64(v.fixed, uint64(n))
		}
	}
}

func decodeTexts(v *values, data []byte, reserve func(int64)) {
	v.texts = decodeDeltaTexts(v.count, data, reserve)
	for _, text := range v.texts {
		intact(v.size == 0 || len(text) == v.size)
	}
	v.size = 0
}

// decodeSplit decodes values of which first all first bytes were written, then all second
// bytes, and so on.
func decodeSplit(v *values, data []byte) {
	intact(len(data)/v.size >= v.count)
	v.fixed = make([]byte, v.count*v.size)
	for k := range v.size {
		stream := data[k*v.count : (k+1)*v.count]
		for i, b := range stream {
			v.fixed[i*v.size+k] = b
		}
	}
}
