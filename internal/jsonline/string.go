package jsonline

import (
	"math/bits"
	"unsafe"
)

// A byte repeated in all 8 bytes of a word is the byte times ones.
const ones = 0x0101010101010101

// special has the high bit set in the first byte of x (lowest first) that
// cannot simply be stepped over in a string: '"', '\\', a control character or
// non-ASCII. Bytes above the first one may be marked wrongly, because a
// subtraction borrows from them; so only the lowest mark may be used.
//
// With bit 1 flipped '"' becomes 0x20 and the control characters stay below
// it, while everything else is above: one comparison finds both.
func special(x uint64) uint64 {
	low := (x ^ 0x02*ones) - 0x21*ones
	backslash := (x ^ '\\'*ones) - ones
	return (low | backslash | x) & (0x80 * ones)
}

// skipPlain returns the offset of the first special byte at or after i.
func skipPlain[Bytes string | []byte](s Bytes, i int) int {
	for tried := i + wideAfter; len(s)-i >= 8; {
		if m := special(word(s[i : i+8])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		if i += 8; widePlain && i == tried && i < len(s) {
			i += skipPlainWide(at(s, i), len(s)-i)
		}
	}
	for i < len(s) && special(uint64(s[i])|' '*(ones-1)) == 0 {
		i++
	}
	return i
}

// wideAfter is how many bytes a string must have shown before it is looked at in larger
// steps: in most texts an escape, or a letter that is not ASCII, comes before.
const wideAfter = 64

// at points to byte i, which there must be. A string begins with the address of its
// bytes, as a slice does.
func at[Bytes string | []byte](s Bytes, i int) *byte {
	return (*byte)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&s)), i))
}

// word is binary.LittleEndian.Uint64 for strings as well: the compiler makes
// one load of it.
func word[Bytes string | []byte](s Bytes) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// skipString skips a string from its opening quote on, and says whether there
// is a backslash in it.
func skipString(line []byte, i int) (end int, escaped bool, why failure) {
	i++
	for {
		i = skipPlain(line, i)
		if i >= len(line) {
			return i, escaped, unexpected
		}
		switch c := line[i]; {
		case c == '"':
			return i + 1, escaped, okay
		case c == '\\':
			escaped = true
			i, why = skipEscape(line, i)
		case c < ' ':
			why = unexpected
		default:
			i, why = skipRunes(line, i)
		}
		if why != okay {
			return i, escaped, why
		}
	}
}

// skipEscape skips one escape from its backslash on. Halves of surrogate pairs
// may stand alone: encoding/json accepts them too.
func skipEscape(line []byte, i int) (int, failure) {
	i++
	if i >= len(line) {
		return i, unexpected
	}
	switch line[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, okay
	case 'u':
		for end := i + 4; i < end; {
			i++
			if i >= len(line) || !isHex(line[i]) {
				return i, unexpected
			}
		}
		return i + 1, okay
	}
	return i, unexpected
}

func isHex(c byte) bool { return isDigit(c) || (c|0x20)-'a' <= 'f'-'a' }

// skipRunes skips the non-ASCII characters from i on. It refuses what
// unicode/utf8 does: stray and missing continuation bytes, characters written
// longer than needed, surrogates, and what lies beyond U+10FFFF.
func skipRunes[Bytes string | []byte](s Bytes, i int) (int, failure) {
	for i < len(s) && s[i] >= 0x80 {
		rest := s[i:]
		if len(rest) >= 3 && isPlain3(rest[0], rest[1], rest[2]) {
			i += 3
			continue
		}
		switch c := rest[0]; {
		case c < 0xe0:
			if c < 0xc2 || len(rest) < 2 || !isTail(rest[1]) {
				return i, unexpected
			}
			i += 2
		case c < 0xf0:
			if len(rest) < 3 || !isTail(rest[1]) || !isTail(rest[2]) {
				return i, unexpected
			}
			// The leading 10 of the 16 bits tell all that is wrong with 3 bytes.
			top := uint(c&0x0f)<<6 | uint(rest[1]&0x3f)
			if top < 0x800>>6 || top>>5 == 0xd800>>11 {
				return i, unexpected
			}
			i += 3
		default:
			if len(rest) < 4 || !isTail(rest[1]) || !isTail(rest[2]) || !isTail(rest[3]) {
				return i, unexpected
			}
			top := uint(c-0xf0)<<6 | uint(rest[1]&0x3f)
			if top < 0x10000>>12 || top > 0x10ffff>>12 {
				return i, unexpected
			}
			i += 4
		}
	}
	return i, okay
}

// isPlain3 reports whether the bytes are a character of 3 bytes whose first
// byte alone says that it is neither written too long (e0 may be) nor a
// surrogate (ed may be): nearly all of Chinese, Japanese and Korean.
func isPlain3(a, b, c byte) bool {
	x := uint32(a) | uint32(b)<<8 | uint32(c)<<16
	return x&0xc0c0f0 == 0x8080e0 && a != 0xe0 && a != 0xed
}

func isTail(c byte) bool { return c&0xc0 == 0x80 }
