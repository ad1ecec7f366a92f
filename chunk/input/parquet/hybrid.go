package parquet

import (
	"encoding/binary"
	"errors"
)

// errRuns means that encoded values end too early or contradict themselves.
var errRuns = errors.New("the encoded values are damaged")

// decodeRuns decodes small integers of the given number of bits in the encoding RLE, a mix
// of runs and of values packed in bits. It fills dst and returns what follows.
func decodeRuns[T byte | uint32](dst []T, data []byte, width uint) (rest []byte, err error) {
	for len(dst) > 0 {
		header, n := binary.Uvarint(data)
		if n <= 0 || header < 2 {
			return nil, errRuns
		}
		data = data[n:]
		count := header >> 1
		if header&1 == 0 {
			if uint(len(data)) < (width+7)/8 {
				return nil, errRuns
			}
			var value uint32
			for i := range (width + 7) / 8 {
				value |= uint32(data[i]) << (8 * i)
			}
			data = data[(width+7)/8:]
			run := dst[:min(count, uint64(len(dst)))]
			for i := range run {
				run[i] = T(value)
			}
			dst = dst[len(run):]
			continue
		}
		packed := dst[:min(8*min(count, 1<<60), uint64(len(dst)))] // count is in groups of 8
		if uint64(len(data)) < (uint64(len(packed))*uint64(width)+7)/8 {
			return nil, errRuns
		}
		unpack(packed, data, width)
		data = data[min(min(count, 1<<32)*uint64(width), uint64(len(data))):]
		dst = dst[len(packed):]
	}
	return data, nil
}

// unpack fills dst with values of width bits, the lowest bits first.
func unpack[T byte | uint32](dst []T, data []byte, width uint) {
	var held uint64
	var bits uint
	mask := uint64(1)<<width - 1
	at := 0
	for i := range dst {
		for bits < width {
			held |= uint64(data[at]) << bits
			at++
			bits += 8
		}
		dst[i] = T(held & mask)
		held >>= width
		bits -= width
	}
}

// widthOf returns the number of bits that values up to most take.
func widthOf(most int) (width uint) {
	for ; most > 0; most >>= 1 {
		width++
	}
	return width
}
