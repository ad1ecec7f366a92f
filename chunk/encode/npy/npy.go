// Package npy writes NumPy arrays whose number of rows is known only at the end.
//
// The header has a fixed length, so a file can be begun with the header of an empty array,
// get its rows appended, and its header be replaced at the end. All values are little-endian.
package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// HeaderBytes is the length of every header. It fits any number of rows, and aligns the
// data.
const HeaderBytes = 128

const magic = "\x93NUMPY\x01\x00"

// Header returns the header of an array with the given number of rows. dtype is NumPy's name of the type,
// shape has the dimensions of a row: none if it is one value. The header of too many dimensions is longer
// than HeaderBytes.
func Header(dtype string, rows int64, shape []int) []byte {
	all := strconv.FormatInt(rows, 10)
	for _, n := range shape {
		all += ", " + strconv.Itoa(n)
	}
	if len(shape) == 0 {
		all += ","
	}
	header := make([]byte, 0, HeaderBytes)
	header = append(header, magic...)
	header = binary.LittleEndian.AppendUint16(header, HeaderBytes-uint16(len(magic))-2)
	header = fmt.Appendf(header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtype, all)
	for len(header) < HeaderBytes-1 {
		header = append(header, ' ')
	}
	return append(header, '\n')
}

// Float16 appends a number in half precision, rounded to the nearest, ties to even. What is
// too large becomes infinite. NaN stays NaN.
func Float16(dst []byte, f float32) []byte { return binary.LittleEndian.AppendUint16(dst, half(f)) }

// half converts a number to half precision.
func half(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	exponent := int(b>>23&0xff) - 127
	fraction := b & 0x7fffff
	switch {
	case exponent == 128 && fraction != 0:
		return sign | 0x7e00 | uint16(fraction>>13) // NaN, quiet
	case exponent > 15:
		return sign | 0x7c00
	case exponent >= -14:
		return sign + uint16(round(uint32(exponent+15)<<23|fraction, 13))
	case exponent >= -25:
		return sign + uint16(round(fraction|1<<23, uint(-exponent-1)))
	}
	return sign
}

// round returns x / 2^bits, rounded to the nearest, ties to even.
func round(x uint32, bits uint) uint32 {
	return (x + (1<<(bits-1) - 1) + x>>bits&1) >> bits
}
