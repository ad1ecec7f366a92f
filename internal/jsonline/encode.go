package jsonline

import (
	"encoding/base64"
	"io"
	"unicode/utf8"
)

// AppendString appends s to dst as a JSON string. It escapes only what JSON requires:
// '"', '\\' and control characters, but not HTML or U+2028. Invalid UTF-8 becomes U+FFFD.
func AppendString[Bytes string | []byte](dst []byte, s Bytes) []byte {
	dst, _ = AppendText(dst, s)
	return dst
}

// AppendText is AppendString that also reports whether s is valid UTF-8.
func AppendText[Bytes string | []byte](dst []byte, s Bytes) (_ []byte, valid bool) {
	dst, valid = appendEscaped(append(dst, '"'), s)
	return append(dst, '"'), valid
}

const (
	// A byte takes at most 6 when escaped, as in \u0001. So any piece fits into the
	// buffer, quotes included, and usually ten do.
	pieceSize  = 4 << 10
	bufferSize = 64 << 10
)

// WriteString writes line to w as a JSON string, with the same bytes as AppendString, in
// constant memory: the line may be gigabytes, mapped from a file. It returns the error of
// w.
//
// line should be valid UTF-8: other bytes cannot be recovered from the string.
func WriteString(w io.Writer, line []byte) error {
	buf := make([]byte, 0, min(bufferSize, 6*len(line)+2))
	buf = append(buf, '"')
	for len(line) > 0 {
		n := pieceEnd(line)
		if cap(buf)-len(buf) < 6*n+1 {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		buf, _ = appendEscaped(buf, line[:n])
		line = line[n:]
	}
	_, err := w.Write(append(buf, '"'))
	return err
}

// AppendBase64 appends data as a JSON string, in base64.
func AppendBase64(dst, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), data), '"')
}

// AppendOnLine appends a JSON document without line ends, which are white space outside strings.
func AppendOnLine(dst, document []byte) []byte {
	for _, c := range document {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}

// pieceEnd returns where to cut off the next piece of line, not inside a character.
func pieceEnd(line []byte) int {
	if len(line) <= pieceSize {
		return len(line)
	}
	for n := pieceSize; n > pieceSize-utf8.UTFMax; n-- {
		if utf8.RuneStart(line[n]) {
			return n
		}
	}
	return pieceSize // not UTF-8: cut anywhere
}

// appendEscaped appends s as the contents of a JSON string, without the quotes, and reports whether it
// is valid UTF-8.
func appendEscaped[Bytes string | []byte](dst []byte, s Bytes) (_ []byte, valid bool) {
	valid = true
	start := 0 // of the part not yet appended
	for i := skipPlain(s, 0); i < len(s); i = skipPlain(s, i) {
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		var why failure
		if i, why = skipRunes(s, i); why != okay {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\ufffd"...)
			i++
			start, valid = i, false
		}
	}
	return append(dst, s[start:]...), valid
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}
