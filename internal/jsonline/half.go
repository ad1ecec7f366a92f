package jsonline

import (
	"math"
	"sync"
)

// Many networks compute in 16 bits. As float32, their results take one of only 30,720
// values, ignoring signs and very small numbers. The text of each is formatted once and
// then copied from a table.

const (
	// halfUnused are the bits of a float32 that are zero in a float16, and also in a
	// bfloat16 of that range, which has fewer digits.
	halfUnused = 1<<13 - 1
	// From 2^-14 up to 2^16, exclusive, a float16 is normal and has its full precision.
	smallestHalf = (127 - 14) << 10
	halfCount    = 30 << 10
)

// written is the text of a number, with its length in the last byte.
type written [16]byte

// halves holds all positive values in ascending order.
var halves = sync.OnceValue(func() *[halfCount]written {
	var table [halfCount]written
	for i := range table {
		text, _ := AppendFloat32(nil, math.Float32frombits(uint32(i+smallestHalf)<<13))
		table[i][len(table[i])-1] = byte(copy(table[i][:len(table[i])-1], text))
	}
	return &table
})

// halfIndex returns the index in halves of the float32 with these bits, ignoring the sign.
// If the result is halfCount or more, the number is not in the table.
func halfIndex(b uint32) uint32 {
	if b&halfUnused != 0 {
		return halfCount
	}
	return b&^(1<<31)>>13 - smallestHalf // wraps to a large value if b is too small
}
