// Package rawnum copies numbers to and from little-endian bytes. On most machines that is
// the memory layout, and the copy is a single one. A bool is one byte.
package rawnum

import (
	"encoding/binary"
	"unsafe"
)

// Number is a type with the same size in bytes and in memory, for which any bytes are
// valid.
type Number interface{ float32 | float64 | int64 }

// asInMemory: this machine is little-endian.
var asInMemory = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Put writes values to the beginning of data, which must have room for them.
func Put[T Number](data []byte, values []T) {
	if asInMemory {
		copy(data, view(values))
	} else if _, err := binary.Encode(data, binary.LittleEndian, values); err != nil {
		panic(err) // not enough room
	}
}

// Get returns the values in data, which must contain a whole number of them.
func Get[T Number](data []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	if asInMemory && len(data) >= size {
		copied := append([]byte(nil), data...) // which needs no zeros first, unlike make
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(copied))), len(data)/size)
	}
	values := make([]T, len(data)/size)
	if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
		panic(err) // len(values) is what fits
	}
	return values
}

// view returns the memory of values.
func view[T Number](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// View returns the memory of values if it is little-endian.
func View[T Number](values []T) ([]byte, bool) { return view(values), asInMemory }

// PutBools writes a byte for each value, 1 for true.
func PutBools(data []byte, values []bool) {
	for i, value := range values {
		data[i] = 0
		if value {
			data[i] = 1
		}
	}
}

// GetBools treats every nonzero byte as true: another process may have written it, and a
// bool in memory must be 0 or 1.
func GetBools(data []byte) []bool {
	values := make([]bool, len(data))
	for i, b := range data {
		values[i] = b != 0
	}
	return values
}
