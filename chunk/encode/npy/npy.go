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

// Array describes an array: one row for each record.
type Array struct {
	// DType is NumPy's name of the type: "<f2", "<f4", "<f8", "<i8", "|b1" or "|u1".
	DType string
	// Width is the number of values in a row; 0 means that the array has one dimension.
	Width int
	// Shape has the dimensions of a row if it has more than one. Their product is Width.
	Shape []int
}

// HeaderBytes is the length of every header. It fits any number of rows, and aligns the
// data.
const HeaderBytes = 128

const magic = "\x93NUMPY\x01\x00"

// sizes are the sizes of the types that can be written.
var sizes = map[string]int{"<f2": 2, "<f4": 4, "<f8": 8, "<i8": 8, "|b1": 1, "|u1": 1}

// Header returns the header of an array with the given number of rows.
func (a Array) Header(rows int64) []byte {
	shape := strconv.FormatInt(rows, 10) + ","
	switch {
	case len(a.Shape) > 1:
		shape = strconv.FormatInt(rows, 10)
		for _, n := range a.Shape {
			shape += ", " + strconv.Itoa(n)
		}
	case a.Width > 0:
		shape = fmt.Sprintf("%d, %d", rows, a.Width)
	}
	header := make([]byte, 0, HeaderBytes)
	header = append(header, magic...)
	header = binary.LittleEndian.AppendUint16(header, HeaderBytes-uint16(len(magic))-2)
	header = fmt.Appendf(header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", a.DType, shape)
	for len(header) < HeaderBytes-1 {
		header = append(header, ' ')
	}
	return append(header, '\n')
}

// RowBytes returns the number of bytes of a row.
func (a Array) RowBytes() int { return sizes[a.DType] * max(a.Width, 1) }

// Validate checks that an array of this kind can be written.
func (a Array) Validate() error {
	if sizes[a.DType] == 0 {
		return fmt.Errorf("arrays of type %q cannot be written", a.DType)
	}
	if a.Width < 0 {
		return fmt.Errorf("an array with rows of %d values", a.Width)
	}
	if len(a.Shape) == 0 {
		return nil
	}
	width := 1
	for _, n := range a.Shape {
		if n < 1 || n > math.MaxInt32/width {
			return fmt.Errorf("an array with rows of the dimensions %d", a.Shape)
		}
		width *= n
	}
	if len(a.Shape) == 1 || width != a.Width || len(a.Header(math.MaxInt64)) > HeaderBytes {
		return fmt.Errorf("an array with rows of the dimensions %d", a.Shape)
	}
	return nil
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
