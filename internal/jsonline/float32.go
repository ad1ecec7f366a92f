package jsonline

import (
	"math"
	"math/bits"
)

// decimal32 returns the shortest decimal, digits * 10^exponent, that reads back as the
// finite float32 with these bits, ignoring the sign; if there are several, the closest.
// This is Raffaello Giulietti's Schubfach ("The Schubfach way to render doubles", 2020) in
// its 32-bit form, for which one 64-bit factor is exact enough. A test compares it with
// strconv, which is several times slower.
func decimal32(b uint32) (digits uint32, exponent int) {
	fraction, biased := b&(1<<23-1), int(b>>23&0xff)
	c, q := fraction, 1-150
	if biased != 0 {
		c, q = fraction|1<<23, biased-150
		if -24 < q && q <= 0 && c&(1<<-q-1) == 0 {
			return c >> -q, 0 // a whole number
		}
	}
	// The bounds of the rounding interval are half a unit away, except that the lower one
	// is nearer for powers of two. Scale everything by 4, then by a power of ten.
	nearer := uint32(0)
	k := (q * 1262611) >> 22 // floor(log10(2^q))
	if fraction == 0 && biased > 1 {
		nearer = 1
		k = (q*1262611 - 524031) >> 22 // floor(log10(3/4 * 2^q))
	}
	h := q + (-k*1741647)>>19 + 1
	power := powers32[-k+31]
	value := scale32(power, 4*c<<h)
	odd := c & 1 // for an even c, the interval includes its bounds
	lower := scale32(power, (4*c-2+nearer)<<h) + odd
	upper := scale32(power, (4*c+2)<<h) - odd

	s := value / 4
	if s >= 10 {
		short := s / 10 * 40
		down, up := lower <= short, short+40 <= upper
		if down != up {
			return s/10 + truth(up), k + 1
		}
	}
	down, up := lower <= 4*s, 4*s+4 <= upper
	if down != up {
		return s + truth(up), k
	}
	middle := 4*s + 2
	// Round a tie to the even digit, but up next to a power of two, as strconv does.
	return s + truth(value > middle || value == middle && (s&1 != 0 || nearer != 0)), k
}

// scale32 returns power * c / 2^64, with the lowest bit set if the result is truncated.
func scale32(power uint64, c uint32) uint32 {
	high, low := bits.Mul64(power, uint64(c))
	return uint32(high) | truth(low>>32 > 1)
}

func truth(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// maxPlain32 is the most bytes that putDecimal writes, plus a sign.
const maxPlain32 = 24

// putDecimal writes digits * 10^exponent to the beginning of p, without an exponent and
// always with a decimal point, and returns the number of bytes. p must have room for
// maxPlain32 bytes, less the sign.
func putDecimal(p []byte, digits uint32, exponent int) int {
	for exponent < 0 && digits%10 == 0 {
		digits /= 10
		exponent++
	}
	n := digitsIn(digits)
	switch point := n + exponent; {
	case exponent >= 0:
		putDigits(p[:n], digits)
		n += copy(p[n:], zeros[:exponent])
		p[n], p[n+1] = '.', '0'
		return n + 2
	case point > 0:
		putDigits(p[1:1+n], digits)
		copy(p[:point], p[1:1+point])
		p[point] = '.'
		return n + 1
	default:
		start := copy(p, zeroPoint[:2-point])
		putDigits(p[start:start+n], digits)
		return start + n
	}
}

// digitsIn returns the number of decimal digits of n.
func digitsIn(n uint32) int {
	count := (bits.Len32(n|1) * 1233) >> 12 // the number of digits, or one less
	if n >= tens[count] {
		count++
	}
	return max(count, 1)
}

var tens = [...]uint32{1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000}

// putDigits fills p with the digits of n.
func putDigits(p []byte, n uint32) {
	at := len(p)
	for at >= 2 {
		pair := n % 100 * 2
		n /= 100
		at -= 2
		p[at], p[at+1] = pairs[pair], pairs[pair+1]
	}
	if at == 1 {
		p[0] = byte('0' + n)
	}
}

const (
	zeros     = "000000000000000000000"
	zeroPoint = "0.0000000"
	pairs     = "00010203040506070809" +
		"10111213141516171819" +
		"20212223242526272829" +
		"30313233343536373839" +
		"40414243444546474849" +
		"50515253545556575859" +
		"60616263646566676869" +
		"70717273747576777879" +
		"80818283848586878889" +
		"90919293949596979899"
)

// isPlain32 reports whether the float32 with these bits is finite and written
// without an exponent.
func isPlain32(b uint32) bool {
	b &^= 1 << 31
	return b == 0 || b >= smallest32 && b < largest32
}

// From 1e-6 up to 1e21, exclusive, encoding/json writes no exponent.
var smallest32, largest32 = math.Float32bits(1e-6), math.Float32bits(1e21)

// powers32 holds the leading 64 bits of 10^k, rounded up, starting at k = -31.
var powers32 = [...]uint64{
	0x81ceb32c4b43fcf5, // 1e-31
	0xa2425ff75e14fc32, // 1e-30
	0xcad2f7f5359a3b3f, // 1e-29
	0xfd87b5f28300ca0e, // 1e-28
	0x9e74d1b791e07e49, // 1e-27
	0xc612062576589ddb, // 1e-26
	0xf79687aed3eec552, // 1e-25
	0x9abe14cd44753b53, // 1e-24
	0xc16d9a0095928a28, // 1e-23
	0xf1c90080baf72cb2, // 1e-22
	0x971da05074da7bef, // 1e-21
	0xbce5086492111aeb, // 1e-20
	0xec1e4a7db69561a6, // 1e-19
	0x9392ee8e921d5d08, // 1e-18
	0xb877aa3236a4b44a, // 1e-17
	0xe69594bec44de15c, // 1e-16
	0x901d7cf73ab0acda, // 1e-15
	0xb424dc35095cd810, // 1e-14
	0xe12e13424bb40e14, // 1e-13
	0x8cbccc096f5088cc, // 1e-12
	0xafebff0bcb24aaff, // 1e-11
	0xdbe6fecebdedd5bf, // 1e-10
	0x89705f4136b4a598, // 1e-9
	0xabcc77118461cefd, // 1e-8
	0xd6bf94d5e57a42bd, // 1e-7
	0x8637bd05af6c69b6, // 1e-6
	0xa7c5ac471b478424, // 1e-5
	0xd1b71758e219652c, // 1e-4
	0x83126e978d4fdf3c, // 1e-3
	0xa3d70a3d70a3d70b, // 1e-2
	0xcccccccccccccccd, // 1e-1
	0x8000000000000000, // 1e0
	0xa000000000000000, // 1e1
	0xc800000000000000, // 1e2
	0xfa00000000000000, // 1e3
	0x9c40000000000000, // 1e4
	0xc350000000000000, // 1e5
	0xf424000000000000, // 1e6
	0x9896800000000000, // 1e7
	0xbebc200000000000, // 1e8
	0xee6b280000000000, // 1e9
	0x9502f90000000000, // 1e10
	0xba43b74000000000, // 1e11
	0xe8d4a51000000000, // 1e12
	0x9184e72a00000000, // 1e13
	0xb5e620f480000000, // 1e14
	0xe35fa931a0000000, // 1e15
	0x8e1bc9bf04000000, // 1e16
	0xb1a2bc2ec5000000, // 1e17
	0xde0b6b3a76400000, // 1e18
	0x8ac7230489e80000, // 1e19
	0xad78ebc5ac620000, // 1e20
	0xd8d726b7177a8000, // 1e21
	0x878678326eac9000, // 1e22
	0xa968163f0a57b400, // 1e23
	0xd3c21bcecceda100, // 1e24
	0x84595161401484a0, // 1e25
	0xa56fa5b99019a5c8, // 1e26
	0xcecb8f27f4200f3a, // 1e27
	0x813f3978f8940985, // 1e28
	0xa18f07d736b90be6, // 1e29
	0xc9f2c9cd04674edf, // 1e30
	0xfc6f7c4045812297, // 1e31
	0x9dc5ada82b70b59e, // 1e32
	0xc5371912364ce306, // 1e33
	0xf684df56c3e01bc7, // 1e34
	0x9a130b963a6c115d, // 1e35
	0xc097ce7bc90715b4, // 1e36
	0xf0bdc21abb48db21, // 1e37
	0x96769950b50d88f5, // 1e38
	0xbc143fa4e250eb32, // 1e39
	0xeb194f8e1ae525fe, // 1e40
	0x92efd1b8d0cf37bf, // 1e41
	0xb7abc627050305ae, // 1e42
	0xe596b7b0c643c71a, // 1e43
	0x8f7e32ce7bea5c70, // 1e44
	0xb35dbf821ae4f38c, // 1e45
}
