package minhash

import (
	"encoding/binary"
	"unicode"
	"unicode/utf8"

	"github.com/gpurun/gpurun/plugins"
)

// Text appends to dst the text of record i in the form in which every shingle is
// a run of its bytes: for words, they alone with one space between two. Between
// words stands what Python's str.split takes for space. The error is for a failed
// record.
func (o Options) Text(dst []byte, batch plugins.Batch, i int) ([]byte, error) {
	start := len(dst)
	dst, err := batch.Text(dst, i, o.Field)
	if err != nil {
		return dst[:start], err
	}
	if o.Lower {
		dst = append(dst[:start], lower(dst[start:])...)
	}
	if o.Shingle == Words && !spaced(dst[start:]) {
		dst = dst[:start+joinWords(dst[start:])]
	}
	return dst, nil
}

// lower returns text with small letters. It changes it in place where it is ASCII:
// other letters may become longer.
func lower(text []byte) []byte {
	for i, c := range text {
		switch {
		case c >= utf8.RuneSelf:
			return append(text[:i:i], lowerRunes(text[i:])...)
		case 'A' <= c && c <= 'Z':
			text[i] = c | 0x20
		}
	}
	return text
}

func lowerRunes(text []byte) []byte {
	small := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		small = utf8.AppendRune(small, unicode.ToLower(r))
		text = text[size:]
	}
	return small
}

// ones times a byte is that byte in all bytes of a word.
const ones = 0x0101010101010101

// spaced reports whether text is words of ASCII with one space between two, as
// most texts are; false may mean that it was not worth a closer look.
func spaced(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	if text[0] == ' ' || text[len(text)-1] == ' ' {
		return false
	}
	before := uint64(0) // 0x80 if the byte before was a space
	for len(text) >= 8 {
		x := binary.LittleEndian.Uint64(text)
		if (x|(x-0x20*ones))&(0x80*ones) != 0 { // a control character, or no ASCII
			return false
		}
		y := x ^ ' '*ones
		spaces := ^(y + 0x7f*ones) & (0x80 * ones) // y is below 0x80: nothing is carried
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

// joinWords moves the words of text to its start, one space between two, and
// returns the length of what they are then.
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

// spaceAt is the length of the space that begins at text[i], 0 if none does.
// Inside a character none does: its later bytes are no first bytes.
func spaceAt(text []byte, i int) int {
	c := text[i]
	switch {
	case c == ' ' || '\t' <= c && c <= '\r' || 0x1c <= c && c <= 0x1f:
		return 1
	case c < 0xc2 || c > 0xe3:
		return 0
	}
	// All white space beyond ASCII begins with one of these.
	if c != 0xc2 && c != 0xe1 && c != 0xe2 && c != 0xe3 {
		return 0
	}
	r, size := utf8.DecodeRune(text[i:])
	if !unicode.IsSpace(r) {
		return 0
	}
	return size
}
