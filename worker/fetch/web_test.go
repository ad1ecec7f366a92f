package fetch

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// badWeb serves a file in every way that fails, at a path each.
type badWeb struct {
	calls calls
	saw   atomic.Pointer[http.Request]
}

const file = "the file"

func (b *badWeb) serve(w http.ResponseWriter, r *http.Request) {
	n := b.calls.count(r.URL.Path)
	b.saw.Store(r.Clone(r.Context()))
	switch path := strings.TrimPrefix(r.URL.Path, "/"); path {
	case "ok", "query", "a b":
		io.WriteString(w, file)
	case "chunked":
		w.(http.Flusher).Flush()
		io.WriteString(w, file)
	case "empty":
	case "large":
		w.Header().Set("Content-Length", "10000000000")
		io.WriteString(w, body(1000))
	case "endless":
		for {
			if _, err := io.WriteString(w, body(1<<10)); err != nil {
				return
			}
		}
	case "trickle":
		for r.Context().Err() == nil {
			io.WriteString(w, ".")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	case "silent": // no header
		<-r.Context().Done()
	case "stops": // in the body
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, file)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "short", "short-once":
		if path == "short-once" && n > 0 {
			io.WriteString(w, file)
			return
		}
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, file)
	case "gzip", "bomb", "bad-gzip", "cut-gzip", "brotli":
		b.compressed(w, path)
	case "once-500", "once-429":
		if n == 0 {
			code := 500
			if path == "once-429" {
				w.Header().Set("Retry-After", "0")
				code = 429
			}
			http.Error(w, "later", code)
			return
		}
		io.WriteString(w, file)
	case "much-later":
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "later", http.StatusServiceUnavailable)
	case "to-ok":
		http.Redirect(w, r, "/ok?"+r.URL.RawQuery, http.StatusFound)
	case "to-same":
		http.Redirect(w, r, "http://"+r.Host+"/ok", http.StatusFound)
	case "loop":
		http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
	case "to-file":
		w.Header().Set("Location", "file:///etc/passwd")
		w.WriteHeader(302)
	case "to-nowhere":
		w.WriteHeader(302)
	case "to-private":
		http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusFound)
	case "to-mapped":
		http.Redirect(w, r, "http://[::ffff:127.0.0.2]:1/", http.StatusFound)
	case "drop":
		connection, _, _ := w.(http.Hijacker).Hijack()
		connection.Close()
	default:
		var code int
		if _, err := fmt.Sscanf(path, "status-%d", &code); err != nil {
			code = 404
		}
		http.Error(w, "no", code)
	}
}

func (b *badWeb) compressed(w http.ResponseWriter, path string) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	switch path {
	case "bomb":
		_, _ = z.Write(make([]byte, 1<<20))
	default:
		_, _ = io.WriteString(z, file)
	}
	z.Close()
	data := packed.Bytes()
	w.Header().Set("Content-Encoding", "gzip")
	switch path {
	case "brotli":
		w.Header().Set("Content-Encoding", "br")
	case "bad-gzip":
		data = []byte("this is not compressed")
	case "cut-gzip":
		data = data[:len(data)-6]
	}
	_, _ = w.Write(data)
}

func TestWeb(t *testing.T) {
	web := &badWeb{}
	server, permit := serve(t, web.serve)
	host := server.Listener.Addr().String()
	f := open(t, Options{Fetch: wire.Fetch{MaxBytes: 64 << 10, Timeout: time.Minute}, permit: permit})
	large := "! the file has more than fetch-max-bytes 65536"
	for path, want := range map[string]struct {
		text  string
		tries int
	}{
		"ok":         {file, 1},
		"chunked":    {file, 1},
		"empty":      {"", 1},
		"large":      {large, 1},
		"endless":    {large, 1},
		"bomb":       {large, 1},
		"gzip":       {file, 1},
		"bad-gzip":   {"! HOST sends damaged gzip", 1},
		"cut-gzip":   {"! the connection to HOST failed", 5},
		"brotli":     {`! HOST sends the file with the unknown encoding "br"`, 1},
		"status-404": {"! HTTP 404 from HOST", 1},
		"status-403": {"! HTTP 403 from HOST", 1},
		"status-204": {"! HTTP 204 from HOST", 1},
		"status-500": {"! HTTP 500 from HOST", 5},
		"status-408": {"! HTTP 408 from HOST", 5},
		"once-500":   {file, 2},
		"once-429":   {file, 2},
		"much-later": {"! HTTP 503 from HOST", 1},
		"short":      {"! the connection to HOST failed", 5},
		"short-once": {file, 2},
		"drop":       {"! the connection to HOST failed", 0}, // an idle connection is tried again at once
		"loop":       {"! more than 5 redirects, the last from HOST", 6},
		"to-file":    {`! redirect from HOST: "file:" is neither an http: nor an https: URL`, 1},
		"to-nowhere": {"! HTTP 302 from HOST", 1},
		"to-private": {"! 127.0.0.2:1 has no public address, and fetch-allow-private is off", 1},
		"to-mapped":  {"! [::ffff:127.0.0.2]:1 has no public address, and fetch-allow-private is off", 1},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			got := get(t, f, server.URL+"/"+path)
			if wanted := strings.ReplaceAll(want.text, "HOST", host); got != wanted {
				t.Errorf("got  %.200s\nwant %s", got, wanted)
			}
			if n := web.calls.of("/" + path); want.tries > 0 && n != want.tries {
				t.Errorf("%d requests, want %d", n, want.tries)
			}
		})
	}
}

// A host that takes too long, at any moment, fails the record with the same message.
func TestSlowWeb(t *testing.T) {
	web := &badWeb{}
	server, permit := serve(t, web.serve)
	f := open(t, Options{Fetch: wire.Fetch{Timeout: 300 * time.Millisecond}, permit: permit, limits: impatient})
	want := fmt.Sprintf("! %s did not send the file in time", server.Listener.Addr())
	for _, path := range []string{"silent", "stops", "trickle"} {
		if got := get(t, f, server.URL+"/"+path); got != want {
			t.Errorf("%s: %s", path, got)
		}
		if n := web.calls.of("/" + path); n > 5 {
			t.Errorf("%s: %d requests", path, n)
		}
	}
}

// A presigned URL reaches the server byte for byte, and its signature goes nowhere else.
func TestQuery(t *testing.T) {
	web := &badWeb{}
	server, permit := serve(t, web.serve)
	f := open(t, Options{permit: permit})
	for query, want := range map[string]string{
		"X-Sig=a%2Fb%2bc%20d&x=~*'();,/?:@+=&&y": "X-Sig=a%2Fb%2bc%20d&x=~*'();,/?:@+=&&y",
		"a=ü b\"#fragment":                       "a=%C3%BC%20b\"",
	} {
		if got := get(t, f, server.URL+"/query?"+query); got != file {
			t.Fatal(got)
		}
		_, sent, _ := strings.Cut(web.saw.Load().RequestURI, "?")
		if sent != want {
			t.Errorf("%s was sent as %s", query, sent)
		}
	}
	for path, want := range map[string]string{"/a%20b": "/a%20b", "/a b": "/a%20b", "/%61%20%62": "/%61%20%62"} {
		if got := get(t, f, server.URL+path); got != file {
			t.Fatal(got)
		}
		if sent := web.saw.Load().RequestURI; sent != want {
			t.Errorf("%s was sent as %s", path, sent)
		}
	}
	if got := get(t, f, strings.Replace(server.URL, "://", "://me:pass@", 1)+"/to-ok?signature=s3cret"); got != file {
		t.Error(got)
	}
	if header := web.saw.Load().Header; header.Get("Referer") != "" {
		t.Errorf("a redirect carries %v", header)
	}
	if got := get(t, f, strings.Replace(server.URL, "://", "://me:pass@", 1)+"/to-same"); got != file {
		t.Error(got)
	}
	if header := web.saw.Load().Header; header.Get("Authorization") != "" {
		t.Errorf("a redirect to a host carries %v", header)
	}
	item := f.Start(t.Context(), Named(server.URL+"/none?signature=s3cret"))
	defer item.Release()
	if failure := item.Wait(t.Context()); failure == nil || strings.Contains(fmt.Sprint(*failure), "s3cret") {
		t.Errorf("%+v", failure)
	}
}

func TestBadURLs(t *testing.T) {
	f := open(t, Options{Fetch: wire.Fetch{Timeout: time.Second}})
	for value, want := range map[string]string{
		"http:///a":            "! the URL has no host",
		"http:a":               "! the URL has no host",
		"https://":             "! the URL has no host",
		"http://a b/":          "! the URL is not valid",
		"http://host:99x/":     "! the URL is not valid",
		"http://host/%zz":      "! the URL is not valid",
		"http://[::1/":         "! the URL is not valid",
		"http://localhost:1/":  "! localhost:1 has no public address, and fetch-allow-private is off",
		"http://127.0.0.1:1/":  "! 127.0.0.1:1 has no public address, and fetch-allow-private is off",
		"http://2130706433:1/": "", // some resolvers accept it
		"http://[::1]:1/":      "! [::1]:1 has no public address, and fetch-allow-private is off",
		"http://169.254.169.254/latest/meta-data/": "! 169.254.169.254 has no public address, and fetch-allow-private is off",
		"http://" + strings.Repeat("a", maxValue):  fmt.Sprintf("! a path or URL of %d bytes is too long", maxValue+7),
	} {
		got := get(t, f, value)
		if got != want && (want != "" || !strings.HasPrefix(got, "! ")) {
			t.Errorf("%.60q: %s", value, got)
		}
	}
	if got := get(t, f, "http://no-such-host.invalid/"); !strings.Contains(got, "no-such-host.invalid") {
		t.Error(got)
	}
}

// A proxy is not used unless private addresses are permitted: it could reach any.
func TestProxy(t *testing.T) {
	proxied := atomic.Int64{}
	proxy, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		proxied.Add(1)
		io.WriteString(w, "proxied "+r.URL.String())
	})
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	got := get(t, open(t, Options{Fetch: wire.Fetch{Timeout: time.Second}}), "http://10.1.2.3/a")
	if proxied.Load() != 0 || got != "! 10.1.2.3 has no public address, and fetch-allow-private is off" {
		t.Errorf("%s; %d requests through the proxy", got, proxied.Load())
	}
}

func TestInsecureRedirect(t *testing.T) {
	if failure := checkRedirect(mustURL(t, "https://a/"), mustURL(t, "http://a/")); failure == nil || failure.Message != "redirect from a: from https: to http:" {
		t.Errorf("%v", failure)
	}
	if failure := checkRedirect(mustURL(t, "http://a/"), mustURL(t, "https://b/")); failure != nil {
		t.Errorf("%v", failure)
	}
}

// A certificate that is not trusted fails at once.
func TestCertificate(t *testing.T) {
	server, permit := serveTLS(t)
	f := open(t, Options{permit: permit})
	host := server.Listener.Addr().String()
	if got := get(t, f, server.URL+"/"); got != "! the connection to "+host+" is not secure" {
		t.Error(got)
	}
	if got := get(t, f, strings.Replace(server.URL, "https", "http", 1)+"/"); !strings.HasPrefix(got, "! HTTP 400") {
		t.Error(got)
	}
}

// Connections are kept, and their number follows the limits.
func TestConnections(t *testing.T) {
	var now, most, connections atomic.Int64
	server, permit := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(2 * time.Millisecond)
		now.Add(-1)
		io.WriteString(w, file)
	})
	f := open(t, Options{Fetch: wire.Fetch{Concurrency: 16, PerHost: 4}, permit: func(to netip.AddrPort) bool {
		connections.Add(1)
		return permit(to)
	}})
	var items []*Item
	for i := range 200 {
		items = append(items, f.Start(t.Context(), Named(fmt.Sprintf("%s/%d", server.URL, i))))
	}
	for _, item := range items {
		if failure := item.Wait(t.Context()); failure != nil {
			t.Error(failure)
		}
		item.Release()
	}
	// A caller waits for one that is exempt from the limit.
	if most.Load() > 5 || connections.Load() > 20 {
		t.Errorf("%d requests at a time on %d connections", most.Load(), connections.Load())
	}
	if len(f.web.hosts.rooms) != 0 {
		t.Errorf("hosts are not forgotten: %v", f.web.hosts.rooms)
	}
}

// A host that refuses connections is tried again.
func TestRefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	f := open(t, Options{permit: func(netip.AddrPort) bool { return true }})
	item := f.Start(t.Context(), Named("http://"+address+"/a?q=secret"))
	defer item.Release()
	failure := item.Wait(t.Context())
	if failure == nil || failure.Message != "the connection to "+address+" failed" || item.Retries() != f.options.Retries {
		t.Errorf("%v after %d retries", failure, item.Retries())
	}
}

// What a host sends after a file is never taken for the next file.
func TestBytesAfterAFileCloseTheConnection(t *testing.T) {
	sent := make(chan struct{})
	server, permit := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, in, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		send := func(text string) {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
		for ; err == nil; r, err = http.ReadRequest(in.Reader) {
			send(r.URL.Path)
			sent <- struct{}{} // the file is complete
			send("/surplus")
			sent <- struct{}{}
		}
	})
	f := open(t, Options{permit: permit})
	for i := range 300 {
		want, got := fmt.Sprint("/", i), make(chan string)
		go func() { got <- get(t, f, server.URL+want) }()
		<-sent
		if text := <-got; text != want {
			t.Fatalf("%s is %q", want, text)
		}
		<-sent
	}
}
