package plugins

// Numbers travel as little-endian bytes. On most machines that is their memory layout, and
// nothing is converted. A bool is one byte.

import (
	"encoding/binary"
	"unsafe"
)

// rawNumber is a type with the same size in bytes and in memory.
type rawNumber interface {
	float32 | float64 | int64 | bool
}

// asInMemory: this machine is little-endian.
var asInMemory = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// rawSize returns the bytes of one number.
func rawSize[T rawNumber]() int { return int(unsafe.Sizeof(*new(T))) }

// rawBytes returns the bytes of values: their memory, or a copy if that is in another order.
func rawBytes[T rawNumber](values []T) []byte {
	if !asInMemory {
		data, _ := binary.Append(nil, binary.LittleEndian, values) // fails only for other types
		return data
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*rawSize[T]())
}

// fromRaw returns the values in data, which must contain a whole number of them. Another process
// may have written the data: every byte but 0 is true.
func fromRaw[T rawNumber](data []byte) []T {
	_, isBool := any(*new(T)).(bool) // which in memory must be 0 or 1
	if asInMemory && !isBool && len(data) > 0 {
		copied := append([]byte(nil), data...) // which needs no zeros first, unlike make
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(copied))), len(data)/rawSize[T]())
	}
	values := make([]T, len(data)/rawSize[T]())
	if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
		panic(err) // len(values) is what fits
	}
	return values
}
