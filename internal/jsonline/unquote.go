package jsonline

import (
	"bytes"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// The unexported functions in this file take the contents of a valid string, without its
// quotes.

// unescape decodes the escape at the start of s and returns its size in bytes. A surrogate
// pair is one escape of 12 bytes; an unpaired surrogate becomes U+FFFD.
func unescape(s []byte) (r rune, size int) {
	switch c := s[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default: // the character itself: '"', '\\' or '/'
		return rune(c), 2
	}
	r = hex4(s[2:])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(s[8:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

// hex4 returns the value of the first 4 bytes of s, which are hexadecimal digits.
func hex4(s []byte) rune {
	var r rune
	for _, c := range s[:4] {
		if isDigit(c) {
			r = r<<4 | rune(c-'0')
		} else {
			r = r<<4 | rune((c|0x20)-'a'+10)
		}
	}
	return r
}

// AppendUnquoted appends to dst the text of value, which must be a valid JSON string with
// its quotes. Unpaired surrogates become the replacement character.
func AppendUnquoted(dst, value []byte) []byte {
	return appendUnquoted(dst, value[1:len(value)-1])
}

// TextLen returns the length in bytes of the text of value, which must be a valid JSON
// string with its quotes: what AppendUnquoted would append.
func TextLen(value []byte) int {
	s := value[1 : len(value)-1]
	n := len(s)
	for {
		plain := bytes.IndexByte(s, '\\')
		if plain < 0 {
			return n
		}
		r, size := unescape(s[plain:])
		n += utf8.RuneLen(r) - size
		s = s[plain+size:]
	}
}

// WriteUnquoted writes the text of value, which must be a valid JSON string with its
// quotes, in constant memory.
func WriteUnquoted(w io.Writer, value []byte) error {
	const most = 4 << 10
	s := value[1 : len(value)-1]
	buffer := make([]byte, 0, most)
	for len(s) > 0 {
		n := escapedEnd(s, most)
		buffer = appendUnquoted(buffer[:0], s[:n])
		if _, err := w.Write(buffer); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

// escapedEnd returns where to cut s, near most bytes if it is longer: not inside an escape
// or a surrogate pair.
func escapedEnd(s []byte, most int) int {
	end := 0
	for end < min(len(s), most) {
		plain := bytes.IndexByte(s[end:min(len(s), most)], '\\')
		if plain < 0 {
			return min(len(s), most)
		}
		_, size := unescape(s[end+plain:])
		end += plain + size
	}
	return end
}

// appendUnquoted appends the unescaped text of s.
func appendUnquoted(dst, s []byte) []byte {
	for {
		plain := bytes.IndexByte(s, '\\')
		if plain < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:plain]...)
		r, size := unescape(s[plain:])
		dst = utf8.AppendRune(dst, r)
		s = s[plain+size:]
	}
}

// unquotesTo reports whether the unescaped text of s is name, without a buffer.
func unquotesTo(s []byte, name string) bool {
	for len(s) > 0 {
		if s[0] != '\\' {
			if name == "" || name[0] != s[0] {
				return false
			}
			s, name = s[1:], name[1:]
			continue
		}
		r, size := unescape(s)
		var buf [utf8.UTFMax]byte
		n := utf8.EncodeRune(buf[:], r)
		if len(name) < n || name[:n] != string(buf[:n]) {
			return false
		}
		s, name = s[size:], name[n:]
	}
	return name == ""
}
