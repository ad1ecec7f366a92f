// Package web is the page that shows a job or a host in a browser, and the report of a job
// as one HTML file. Its source is in src; dist is built from it by make web and embedded.
//
// The page is static: it has no data of its own, reads the API of the server that serves
// it, and needs nothing else, so it works offline.
package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"strings"
	"time"
)

//go:embed dist
var dist embed.FS

// Policy is the page's Content-Security-Policy: only what this server serves, no inline
// script, no frames.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// types has the media types of the files that a browser may ask for; names do not reach a file system.
var types = map[string]string{
	"": "text/html; charset=utf-8", "assets/app.js": "text/javascript; charset=utf-8",
	"assets/style.css": "text/css; charset=utf-8", "assets/icon.svg": "image/svg+xml",
}

// Handler serves the page at / and its files below /assets/.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := strings.TrimPrefix(r.URL.Path, "/")
		contentType, ok := types[asked]
		if !ok {
			http.NotFound(w, r)
			return
		}
		name := cmp.Or(strings.TrimPrefix(asked, "assets/"), "index.html")
		data := read(name)
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("Cache-Control", "no-cache") // with the ETag: a new version shows at once
		h.Set("ETag", `"`+strings.TrimRight(sum(data), "=")+`"`)
		h.Set("Content-Type", contentType)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	})
}

// read returns a file of the build.
func read(name string) []byte {
	data, err := dist.ReadFile("dist/" + name)
	if err != nil {
		panic(err) // a name in this package is wrong
	}
	return data
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return base64.StdEncoding.EncodeToString(hash[:])
}
