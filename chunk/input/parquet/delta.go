package parquet

import "github.com/gpurun/gpurun/chunk/parquet"

// decodeDeltas decodes n integers in the encoding DELTA_BINARY_PACKED and returns what
// follows them.
func decodeDeltas(n int, data []byte) (values []int64, rest []byte) {
	d := parquet.Numbers{Data: data}
	block, minis, total := d.Uvarint(), d.Uvarint(), d.Uvarint()
	value := d.Varint()
	intact(d.Err == nil && total == uint64(n) && minis > 0 && block > 0 && block <= 1<<20 && block%minis == 0 && block/minis%8 == 0)
	size := int(block / minis)
	// Each block of values takes at least a byte.
	intact(uint64(n)/block <= uint64(len(d.Data)))
	values = make([]int64, 0, n)
	if n > 0 {
		values = append(values, value)
	}
	for len(values) < n {
		least := d.Varint()
		widths := d.Take(minis)
		for _, width := range widths {
			if len(values) == n {
				break // no data follows for blocks that are not used
			}
			count, width := min(size, n-len(values)), uint(width)
			intact(width <= 64 && uint(len(d.Data)) >= (uint(count)*width+7)/8)
			packed := d.Take(uint64(min(size*int(width)/8, len(d.Data)))) // the end of the last ones may be missing
			for i := range count {
				value += least + int64(bitsAt(packed, uint(i)*width, width))
				values = append(values, value)
			}
		}
		intact(d.Err == nil)
	}
	return values, d.Data
}

// bitsAt returns the value of width bits at an offset in bits.
func bitsAt(data []byte, offset, width uint) (value uint64) {
	for got := uint(0); got < width; {
		bit := (offset + got) % 8
		value |= uint64(data[(offset+got)/8]>>bit) << got
		got += 8 - bit
	}
	if width < 64 {
		value &= 1<<width - 1
	}
	return value
}

// decodeDeltaLengths decodes n texts in the encoding DELTA_LENGTH_BYTE_ARRAY.
func decodeDeltaLengths(n int, data []byte) (texts [][]byte, rest []byte) {
	lengths, data := decodeDeltas(n, data)
	texts = make([][]byte, n)
	for i, length := range lengths {
		intact(length >= 0 && length <= int64(len(data)))
		texts[i], data = data[:length], data[length:]
	}
	return texts, data
}

// decodeDeltaTexts decodes n texts in the encoding DELTA_BYTE_ARRAY: each is a beginning of
// the one before it and more.
func decodeDeltaTexts(n int, data []byte, reserve func(int64)) [][]byte {
	prefixes, data := decodeDeltas(n, data)
	texts, _ := decodeDeltaLengths(n, data)
	total, length := int64(0), int64(0)
	for i, prefix := range prefixes {
		intact(prefix >= 0 && prefix <= length)
		length = prefix + int64(len(texts[i]))
		total += length
		intact(total <= maxPage)
	}
	reserve(total)
	var before []byte
	for i, prefix := range prefixes {
		if prefix > 0 {
			texts[i] = append(before[:prefix:prefix], texts[i]...)
		}
		before = texts[i]
	}
	return texts
}
