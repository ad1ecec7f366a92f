package server

import (
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/web"
)

// Access is who may do what.
type Access struct {
	// Token is needed to change anything.
	Token string
	// ReadToken: it is needed to read anything but the page and the health too.
	ReadToken bool
	// Hosts are the names under which the server may be addressed, besides IP addresses,
	// localhost and the host's own name. With another name in the Host header, an
	// attacker has pointed their domain here (DNS rebinding).
	Hosts []string
}

// public are the paths that need no token: the page, which has nothing in it, and what a
// load balancer asks.
func public(path string) bool {
	return path == "/" || path == "/healthz" || path == "/readyz" || path == "/openapi.json" || strings.HasPrefix(path, "/assets/")
}

// guard rejects requests that a browser sends on behalf of another site, and those without
// the token.
func (a Access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case !a.knownHost(r.Host):
			fail(w, http.StatusMisdirectedRequest, "this server does not serve the host %q: the person who started it can allow the name", r.Host)
		case !sameOrigin(r):
			fail(w, http.StatusForbidden, "requests from other sites are refused")
		case (!reads || a.ReadToken && !public(r.URL.Path)) && !a.authorized(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="gpurun"`)
			fail(w, http.StatusUnauthorized, "the token is missing or wrong: send it as Authorization: Bearer TOKEN")
		case !reads && r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")):
			fail(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if r.Header.Del(briefHeader); !a.authorized(r) {
				r.Header.Set(briefHeader, "yes")
			}
			brief(next).ServeHTTP(w, r)
		}
	})
}

// maxBody is far more than any request needs.
const maxBody = 64 << 10

func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", web.Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (a Access) knownHost(header string) bool {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	own, _ := os.Hostname()
	return host == "localhost" || net.ParseIP(host) != nil || host != "" && host == strings.ToLower(own) ||
		slices.ContainsFunc(a.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// sameOrigin reports whether a request comes from the server's own page or from no page at
// all. Reads count too: a page of another site must not learn anything.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		// Following a link to the page is fine: it carries no token.
		return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.URL.Path == "/"
	}
	if len(r.Header.Values("Origin")) == 0 {
		return true
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}

func (a Access) authorized(r *http.Request) bool {
	given, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return found && a.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(a.Token)) == 1
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}
