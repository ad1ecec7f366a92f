package fetch

import (
	"encoding/base64"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// decodeData decodes what follows data: in a data: URI (RFC 2397).
func decodeData(c *contents, text string) *fault.Error {
	header, body, found := strings.Cut(text, ",")
	if !found {
		return failed("the data: URI has no comma")
	}
	if int64(len(body))/3 > c.limit() {
		return (&tooLarge{c.limit()}).failure()
	}
	if err := c.reserve(len(body)); err != nil {
		return canceled()
	}
	var ok bool
	if c.data, ok = unescape(c.data[:0], body); !ok {
		return failed("the data: URI has an invalid percent escape")
	}
	if isBase64(header) {
		if c.data, ok = decodeBase64(c.data); !ok {
			return failed("the data: URI is not valid base64")
		}
	}
	if int64(len(c.data)) > c.limit() {
		return (&tooLarge{c.limit()}).failure()
	}
	return nil
}

// isBase64 reports whether the last parameter of a media type is base64.
func isBase64(header string) bool {
	last := header[strings.LastIndexByte(header, ';')+1:]
	return len(last) < len(header) && strings.EqualFold(strings.TrimSpace(last), "base64")
}

// unescape appends text without its percent escapes.
func unescape(dst []byte, text string) ([]byte, bool) {
	for {
		plain, rest, escaped := strings.Cut(text, "%")
		dst = append(dst, plain...)
		if !escaped {
			return dst, true
		}
		if len(rest) < 2 {
			return dst, false
		}
		high, low := digit(rest[0]), digit(rest[1])
		if high < 0 || low < 0 {
			return dst, false
		}
		dst = append(dst, byte(high<<4|low))
		text = rest[2:]
	}
}

// digit returns the value of a hexadecimal digit, -1 if it is none.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// decodeBase64 decodes in place. White space is ignored, padding may be missing, and the
// alphabet of URLs is accepted too.
func decodeBase64(data []byte) ([]byte, bool) {
	n := 0
	for _, c := range data {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '-':
			c = '+'
		case '_':
			c = '/'
		}
		data[n] = c
		n++
	}
	data = data[:n]
	if n%4 == 0 {
		for range 2 {
			if n > 0 && data[n-1] == '=' {
				n--
			}
		}
	}
	n, err := base64.RawStdEncoding.Decode(data, data[:n])
	return data[:n], err == nil
}
