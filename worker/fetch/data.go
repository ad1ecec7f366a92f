package fetch

import (
	"encoding/base64"
	"net/url"
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
		return c.tooLarge()
	}
	if failure := c.reserve(len(body)); failure != nil {
		return failure
	}
	body, err := url.PathUnescape(body)
	if err != nil {
		return failed("the data: URI has an invalid percent escape")
	}
	encoded := isBase64(header)
	if encoded {
		body = plainBase64(body)
	}
	c.data = append(c.data[:0], body...)
	if encoded {
		n, err := base64.RawStdEncoding.Decode(c.data, c.data)
		if err != nil {
			return failed("the data: URI is not valid base64")
		}
		c.data = c.data[:n]
	}
	if int64(len(c.data)) > c.limit() {
		return c.tooLarge()
	}
	return nil
}

// isBase64 reports whether the last parameter of a media type is base64.
func isBase64(header string) bool {
	last := header[strings.LastIndexByte(header, ';')+1:]
	return len(last) < len(header) && strings.EqualFold(strings.TrimSpace(last), "base64")
}

// plainBase64 returns base64 without padding and white space, in the usual alphabet instead of that
// of URLs.
func plainBase64(text string) string {
	text = strings.Map(func(c rune) rune {
		switch c {
		case ' ', '\t', '\r', '\n':
			return -1
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return c
	}, text)
	if len(text)%4 == 0 {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "="), "=")
	}
	return text
}
