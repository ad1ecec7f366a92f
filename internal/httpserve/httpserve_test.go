package httpserve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shorten makes responses time out soon.
func shorten(t *testing.T) {
	t.Helper()
	before := writeTime
	writeTime = 100 * time.Millisecond
	t.Cleanup(func() { writeTime = before })
}

// serve serves on a loopback port, one connection at a time.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := Serve(l, 1, h)
	t.Cleanup(end)
	return l.Addr().String()
}

// askWithoutReading sends requests until nothing more fits into the connection.
func askWithoutReading(t *testing.T, address string) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for {
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return
			}
		}
	}()
}

// A client that does not read loses its connection, whatever it asked for: with room for one
// connection, another client is served.
func TestSlowReadersLoseTheirConnection(t *testing.T) {
	shorten(t)
	large := strings.Repeat("x", 1<<20)
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, large); err != nil {
				return
			}
		}
	})
	behind := httptest.NewServer(stream)
	defer behind.Close()
	where, _ := url.Parse(behind.URL)
	for name, slow := range map[string]http.Handler{
		"one write": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) }),
		"a file": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x", time.Time{}, strings.NewReader(large))
		}),
		"many writes": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 1000 {
				if _, err := io.WriteString(w, large[:1000]); err != nil {
					return
				}
			}
		}),
		"a stream": stream,
		"a proxy":  &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(where) }, FlushInterval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle("/{$}", slow)
			mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
			address := serve(t, mux)
			askWithoutReading(t, address)
			client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
			response, err := client.Get("http://" + address + "/other")
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
		})
	}
}

// A stream of events lasts as long as its reader reads, also through a proxy.
func TestStreamsOutliveTheWriteTime(t *testing.T) {
	shorten(t)
	const events = 10
	stream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range events {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(writeTime / 4)
		}
	})
	address := serve(t, stream)
	where, _ := url.Parse("http://" + address)
	proxy := serve(t, &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(where) }, FlushInterval: -1,
		Transport: &http.Transport{DisableKeepAlives: true}})
	for _, address := range []string{address, proxy} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data") {
				n++
			}
		}
		_ = response.Body.Close()
		if n != events {
			t.Errorf("%d of %d events arrived", n, events)
		}
	}
}

// A response that takes long to compute has the full time to be read.
func TestTimeBeginsWithTheResponse(t *testing.T) {
	shorten(t)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(3 * writeTime)
		_, _ = io.WriteString(w, "late")
	}))
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if data, _ := io.ReadAll(response.Body); string(data) != "late" {
		t.Errorf("got %q", data)
	}
}
