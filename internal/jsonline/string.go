package jsonline

import (
	"math/bits"
	"unsafe"
)

// A byte repeated in all 8 bytes of a word is the byte times ones.
const ones = 0x0101010101010101

// special returns a word whose lowest marked byte, with its high bit set, is the first
// byte of x that cannot simply be skipped in a string: '"', '\\', a control character or
// non-ASCII. Higher bytes may be marked wrongly, because the subtractions borrow from
// them, so only the lowest mark may be used.
//
// With bit 1 flipped, '"' becomes 0x20, control characters stay below it, and everything
// else is above: one comparison finds both.
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

// wideAfter is how many plain bytes must come before the larger steps begin: most texts
// have an escape or a non-ASCII letter before that.
const wideAfter = 64

// at returns a pointer to byte i, which must exist. The header of a string begins with the
// address of its bytes, as in a slice.
func at[Bytes string | []byte](s Bytes, i int) *byte {
	return (*byte)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&s)), i))
}

// word is binary.LittleEndian.Uint64 that also accepts strings: the compiler turns it
// into a single load.
func word[Bytes string | []byte](s Bytes) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// skipString skips a string, starting at its opening quote, and reports whether it
// contains a backslash.
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

// skipEscape skips one escape, starting at its backslash. Like encoding/json, it accepts
// unpaired surrogates.
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

// skipRunes skips the non-ASCII characters at i. Like unicode/utf8, it rejects stray and
// missing continuation bytes, overlong encodings, surrogates, and anything beyond
// U+10FFFF.
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
			// The top 10 of the 16 bits reveal overlong encodings and surrogates.
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

// isPlain3 reports whether the bytes are a 3-byte character whose first byte rules out an
// overlong encoding (possible after e0) and a surrogate (possible after ed): nearly all of
// Chinese, Japanese and Korean.
func isPlain3(a, b, c byte) bool {
	x := uint32(a) | uint32(b)<<8 | uint32(c)<<16
	return x&0xc0c0f0 == 0x8080e0 && a != 0xe0 && a != 0xed
}

func isTail(c byte) bool { return c&0xc0 == 0x80 }
