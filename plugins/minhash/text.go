package minhash

import (
	"bytes"
	"encoding/binary"
	"unicode"
	"unicode/utf8"

	"github.com/gpurun/gpurun/plugins"
)

// Text appends to dst the text of record i in a form in which every shingle is contiguous:
// words are separated by single spaces. They are split where Python's str.split would
// split them. The text of an error is the message for a failed record.
func (o Options) Text(dst []byte, batch plugins.Batch, i int) ([]byte, error) {
	start := len(dst)
	dst, err := batch.Text(dst, i, o.Field)
	if err != nil {
		return dst[:start], err
	}
	if o.Lower {
		dst = append(dst[:start], bytes.ToLower(dst[start:])...)
	}
	if o.Shingle == Words && !spaced(dst[start:]) {
		dst = dst[:start+joinWords(dst[start:])]
	}
	return dst, nil
}

// ones times a byte repeats that byte in all 8 bytes of a word.
const ones = 0x0101010101010101

// spaced reports whether text consists of ASCII words separated by single spaces, as most
// texts do. A false result may be wrong: it only skips the fast path.
func spaced(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	if text[0] == ' ' || text[len(text)-1] == ' ' {
		return false
	}
	before := uint64(0) // 0x80 if the previous byte was a space
	for len(text) >= 8 {
		x := binary.LittleEndian.Uint64(text)
		if (x|(x-0x20*ones))&(0x80*ones) != 0 { // a control character, or not ASCII
			return false
		}
		y := x ^ ' '*ones
		spaces := ^(y + 0x7f*ones) & (0x80 * ones) // each byte of y is below 0x80, so nothing carries over
		if spaces&(spaces<<8|before) != 0 {
			return false
		}
		before = spaces >> 56
		text = text[8:]
	}
	for _, c := range text {
		if c < ' ' || c >= utf8.RuneSelf || c == ' ' && before != 0 {
			return false
		}
		before = 0
		if c == ' ' {
			before = 0x80
		}
	}
	return true
}

// joinWords moves the words of text to its start, separated by single spaces, and returns
// the resulting length.
func joinWords(text []byte) int {
	out, inWord := 0, false
	for i := 0; i < len(text); {
		size := spaceAt(text, i)
		if size > 0 {
			i += size
			inWord = false
			continue
		}
		if !inWord && out > 0 {
			text[out] = ' '
			out++
		}
		inWord = true
		text[out] = text[i]
		out++
		i++
	}
	return out
}

// spaceAt returns the length of the white space character at text[i], 0 if there is none.
// i may be inside a character: continuation bytes never match a first byte.
func spaceAt(text []byte, i int) int {
	c := text[i]
	switch {
	case c == ' ' || '\t' <= c && c <= '\r' || 0x1c <= c && c <= 0x1f:
		return 1
	case c < 0xc2 || c > 0xe3:
		return 0
	}
	// All non-ASCII white space begins with one of these bytes.
	if c != 0xc2 && c != 0xe1 && c != 0xe2 && c != 0xe3 {
		return 0
	}
	r, size := utf8.DecodeRune(text[i:])
	if !unicode.IsSpace(r) {
		return 0
	}
	return size
}
