package parquet

import "github.com/gpurun/gpurun/chunk/parquet"

// decodeDeltas decodes n integers in the encoding DELTA_BINARY_PACKED and returns what
// follows them.
func decodeDeltas(n int, data []byte) (values []int64, rest []byte, err error) {
	d := deltaReader{parquet.Numbers{Data: data}}
	block, minis, total := d.Uvarint(), d.Uvarint(), d.Uvarint()
	value := d.Varint()
	if d.Err != nil || total != uint64(n) || minis == 0 || block == 0 || block > 1<<20 || block%minis != 0 || block/minis%8 != 0 {
		return nil, nil, errRuns
	}
	size := int(block / minis)
	// Each block of values takes at least a byte.
	if uint64(n)/block > uint64(len(d.Data)) {
		return nil, nil, errRuns
	}
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
			count := min(size, n-len(values))
			packed := d.packed(size, count, uint(width))
			for i := range count {
				if d.Err != nil {
					break
				}
				value += least + int64(bitsAt(packed, uint(i)*uint(width), uint(width)))
				values = append(values, value)
			}
		}
		if d.Err != nil {
			return nil, nil, errRuns
		}
	}
	return values, d.Data, nil
}

type deltaReader struct{ parquet.Numbers }

// packed takes the data of size values, of which count are used. The end of the last ones
// may be missing.
func (d *deltaReader) packed(size, count int, width uint) []byte {
	if width > 64 || uint(len(d.Data)) < (uint(count)*width+7)/8 {
		d.Err = errRuns
		return nil
	}
	return d.Take(uint64(min(size*int(width)/8, len(d.Data))))
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
func decodeDeltaLengths(n int, data []byte) (texts [][]byte, rest []byte, err error) {
	lengths, data, err := decodeDeltas(n, data)
	if err != nil {
		return nil, nil, err
	}
	texts = make([][]byte, n)
	for i, length := range lengths {
		if length < 0 || length > int64(len(data)) {
			return nil, nil, errRuns
		}
		texts[i], data = data[:length], data[length:]
	}
	return texts, data, nil
}

// decodeDeltaTexts decodes n texts in the encoding DELTA_BYTE_ARRAY: each is a beginning of
// the one before it and more.
func decodeDeltaTexts(n int, data []byte, reserve func(int64) error) ([][]byte, error) {
	prefixes, data, err := decodeDeltas(n, data)
	if err != nil {
		return nil, err
	}
	texts, _, err := decodeDeltaLengths(n, data)
	if err != nil {
		return nil, err
	}
	total, length := int64(0), int64(0)
	for i, prefix := range prefixes {
		if prefix < 0 || prefix > length {
			return nil, errRuns
		}
		length = prefix + int64(len(texts[i]))
		if total += length; total > maxPage {
			return nil, errRuns
		}
	}
	if err := reserve(total); err != nil {
		return nil, err
	}
	var before []byte
	for i, prefix := range prefixes {
		if prefix > 0 {
			texts[i] = append(before[:prefix:prefix], texts[i]...)
		}
		before = texts[i]
	}
	return texts, nil
}
