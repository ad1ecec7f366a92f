package fetch

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// target is what a value names: exactly one member is set.
type target struct {
	path string
	url  *url.URL // http or https
	data string   // what follows data:
}

// maxValue is the most bytes of a path or URL. Those of a data: URI are the file itself.
const maxValue = 64 << 10

// IsData reports whether a value is a data: URI, which contains the file.
func IsData(value string) bool { return hasScheme(value, "data") }

var schemeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func hasScheme(value, scheme string) bool {
	return len(value) > len(scheme) && value[len(scheme)] == ':' && strings.EqualFold(value[:len(scheme)], scheme)
}

func parse(value string) (target, *fault.Error) {
	switch {
	case IsData(value):
		return target{data: value[len("data:"):]}, nil
	case value == "":
		return target{}, failed("the path is empty")
	case len(value) > maxValue:
		return target{}, failed("a path or URL of %d bytes is too long", len(value))
	case hasScheme(value, "http"), hasScheme(value, "https"):
		u, failure := parseURL(value)
		return target{url: u}, failure
	case hasScheme(value, "file"):
		return parseFileURL(value)
	}
	if scheme, _, found := strings.Cut(value, "://"); found && schemeName.MatchString(scheme) {
		return target{}, failed("%s: URLs are not supported: use a path, or an http: or https: URL, such as a presigned one", strings.ToLower(scheme))
	}
	return target{path: value}, nil
}

// parseURL parses the URL of a request. Messages do not quote it.
func parseURL(value string) (*url.URL, *fault.Error) {
	u, err := url.Parse(value)
	if err != nil {
		return nil, failed("the URL is not valid").WithDetail(withoutURL(err))
	}
	return u, checkURL(u)
}

func checkURL(u *url.URL) *fault.Error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return failed("%q is neither an http: nor an https: URL", u.Scheme+":")
	}
	if u.Hostname() == "" {
		return failed("the URL has no host")
	}
	u.Fragment, u.RawFragment = "", ""
	u.RawQuery = sendable(u.RawQuery)
	return nil
}

// withoutURL returns the text of an error of url.Parse without the URL, which may hold a
// signature.
func withoutURL(err error) string {
	if e, ok := err.(*url.Error); ok {
		err = e.Err
	}
	if _, invalid := err.(url.EscapeError); invalid {
		return "invalid escape sequence"
	}
	return "parse URL"
}

// sendable returns a query as it was, except for bytes that would break the request line.
func sendable(query string) string {
	var b strings.Builder
	for i := range len(query) {
		c := query[i]
		if c > ' ' && c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func parseFileURL(value string) (target, *fault.Error) {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return target{}, failed("the file: URL is not valid")
	case u.Host != "" && !strings.EqualFold(u.Host, "localhost"):
		return target{}, failed("the file: URL names a file on another host, %q", u.Host)
	case u.Opaque != "" || !filepath.IsAbs(u.Path):
		return target{}, failed("a file: URL needs an absolute path, as in file:///data/1.png")
	}
	return target{path: u.Path}, nil
}
