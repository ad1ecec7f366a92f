// Package rawnum copies numbers to and from bytes, little-endian: as they lie in the
// memory of most machines, where that is one copy. Truth values are a byte each.
package rawnum

import (
	"encoding/binary"
	"unsafe"
)

// Number is what is as long in bytes as in memory, and valid whatever the bytes are.
type Number interface{ float32 | float64 | int64 }

// asInMemory: this machine has numbers as the bytes are.
var asInMemory = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Put writes values to the beginning of data, which has room for them.
func Put[T Number](data []byte, values []T) {
	if asInMemory {
		copy(data, view(values))
	} else if _, err := binary.Encode(data, binary.LittleEndian, values); err != nil {
		panic(err) // there is no room
	}
}

// Get returns the values in data, which has a whole number of them.
func Get[T Number](data []byte) []T {
	values := make([]T, len(data)/int(unsafe.Sizeof(*new(T))))
	if asInMemory {
		copy(view(values), data)
	} else if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
		panic(err) // len(values) is what fits
	}
	return values
}

// view is the memory of values.
func view[T Number](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// PutBools writes a byte for each value, 1 for true.
func PutBools(data []byte, values []bool) {
	for i, value := range values {
		data[i] = 0
		if value {
			data[i] = 1
		}
	}
}

// GetBools takes what is not zero for true: another process may have written it, and a
// bool in memory must be 0 or 1.
func GetBools(data []byte) []bool {
	values := make([]bool, len(data))
	for i, b := range data {
		values[i] = b != 0
	}
	return values
}
