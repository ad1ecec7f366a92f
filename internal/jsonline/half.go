package jsonline

import (
	"math"
	"sync"
)

// Networks compute in 16 bits. What they give, as float32, is one of 30,720 values,
// their signs and the very small aside; each is written once, and copied from then on.

const (
	// halfUnused are the bits of a float32 that a number of 16 bits leaves zero. The
	// kind with more digits is meant, float16; a bfloat16 of that range is one, too.
	halfUnused = 1<<13 - 1
	// From 2^-14 on, below 2^16, a float16 has all of its digits.
	smallestHalf = (127 - 14) << 10
	halfCount    = 30 << 10
)

// written is a number's text, and, in the last byte, its length.
type written [16]byte

// halves are all positive ones, from the smallest on.
var halves = sync.OnceValue(func() *[halfCount]written {
	var table [halfCount]written
	for i := range table {
		text, _ := AppendFloat32(nil, math.Float32frombits(uint32(i+smallestHalf)<<13))
		table[i][len(table[i])-1] = byte(copy(table[i][:len(table[i])-1], text))
	}
	return &table
})

// halfIndex is where a float32 with these bits, sign aside, stands among halves; it is
// none of them if that is halfCount or more.
func halfIndex(b uint32) uint32 {
	if b&halfUnused != 0 {
		return halfCount
	}
	return b&^(1<<31)>>13 - smallestHalf // very large for what is too small
}
