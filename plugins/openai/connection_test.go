package openai

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// rawServer lets a function write the answers to requests. The function gets the text of the
// request, and how many requests the connection had before.
func rawServer(t *testing.T, reply func(text string, before int, conn net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	serveRaw(listener, reply)
	return "http://" + listener.Addr().String()
}

func serveRaw(listener net.Listener, reply func(text string, before int, conn net.Conn)) {
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for before := 0; ; {
					request, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if request.Method == http.MethodGet {
						fmt.Fprint(conn, response(200, "models"))
						continue
					}
					var body map[string]any
					_ = json.NewDecoder(request.Body).Decode(&body)
					reply(textOf(body), before, conn)
					before++
				}
			}()
		}
	}()
}

func response(status int, text string) string {
	body := fmt.Sprintf(`{"choices":[{"text":%q}]}`, text)
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
}

// askEach asks for texts one after the other. All answers must be those to their requests.
func askEach(t *testing.T, k *kernel, n int, between func()) {
	t.Helper()
	for i := range n {
		text := fmt.Sprint("record ", i)
		a := ask(t, k, fmt.Sprintf(`{"text":%q}`, text))
		if a.Verdict == plugins.Retry {
			continue
		}
		if want := fmt.Sprintf(`{"text":%q,"response":%q}`, text, text); a.Verdict != plugins.Lines || string(a.Lines[0]) != want {
			t.Errorf("%s: %v %s %q", text, a.Verdict, a.Message, a.Lines)
			return
		}
		between()
	}
}

const rawConfig = `{"model":"m","prompt":"{text}","endpoint":"completions","concurrency":1`

// A server that sends more than the answer to a request gets no other on that connection: what
// it sent would be taken for the next answer, and all later ones would be shifted.
func TestBytesAfterAnAnswerCloseTheConnection(t *testing.T) {
	t.Run("with the answer", func(t *testing.T) {
		k := open(t, rawServer(t, func(text string, _ int, conn net.Conn) {
			fmt.Fprint(conn, response(200, text)+response(200, "surplus"))
		}), rawConfig+"}")
		askEach(t, k, 500, func() {})
	})
	t.Run("before the next request", func(t *testing.T) {
		answered, sent := make(chan struct{}), make(chan struct{})
		k := open(t, rawServer(t, func(text string, _ int, conn net.Conn) {
			fmt.Fprint(conn, response(200, text))
			<-answered
			fmt.Fprint(conn, response(200, "surplus"))
			sent <- struct{}{}
		}), rawConfig+"}")
		askEach(t, k, 500, func() { answered <- struct{}{}; <-sent })
	})
	t.Run("a part of an answer", func(t *testing.T) {
		k := open(t, rawServer(t, func(text string, _ int, conn net.Conn) {
			fmt.Fprint(conn, response(200, text)+"HTTP/1.1 200 OK\r\nContent-Ty")
		}), rawConfig+"}")
		askEach(t, k, 200, func() {})
	})
	t.Run("many at a time", func(t *testing.T) {
		k := open(t, rawServer(t, func(text string, _ int, conn net.Conn) {
			fmt.Fprint(conn, response(200, text)+response(200, "surplus"))
		}), strings.Replace(rawConfig, `"concurrency":1`, `"concurrency":16`, 1)+"}")
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() { askEach(t, k, 50, func() {}) })
		}
		group.Wait()
	})
}

// The same holds for a connection with TLS, if it does not use HTTP/2.
func TestBytesAfterAnAnswerWithTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // only for its certificate
	t.Cleanup(certified.Close)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	answered, sent := make(chan struct{}), make(chan struct{})
	serveRaw(tls.NewListener(inner, &tls.Config{Certificates: certified.TLS.Certificates}), func(text string, before int, conn net.Conn) {
		fmt.Fprint(conn, response(200, text))
		<-answered
		fmt.Fprint(conn, response(200, "surplus"))
		sent <- struct{}{}
	})
	data, _ := json.Marshal(resolve.OpenAIConfig{URL: "https://" + inner.Addr().String(), Config: json.RawMessage(rawConfig + "}")})
	s, err := parse(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(&s)
	t.Cleanup(c.http.CloseIdleConnections)
	pool := x509.NewCertPool()
	pool.AddCert(certified.Certificate())
	c.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
	for i := range 100 {
		text := fmt.Sprint("record ", i)
		_, got, err := c.roundTrip(t.Context(), request{url: s.endpoint, body: body{text: fmt.Appendf(nil, `{"prompt":%q}`, text)}})
		if err != nil || !strings.Contains(string(got), text+`"`) {
			t.Fatalf("%s: %s %v", text, got, err)
		}
		answered <- struct{}{}
		<-sent
	}
}

// After an error, the answer itself may follow: a gateway gives up and the server behind it does
// not. Such a connection is not used again.
func TestErrorClosesTheConnection(t *testing.T) {
	k := open(t, rawServer(t, func(text string, before int, conn net.Conn) {
		switch {
		case before > 0: // the answer to the request before comes first
			fmt.Fprint(conn, response(200, "late"), response(200, text))
		case strings.HasSuffix(text, "0"):
			fmt.Fprint(conn, response(504, "late"))
		default:
			fmt.Fprint(conn, response(200, text))
			conn.Close()
		}
	}), rawConfig+"}")
	askEach(t, k, 30, func() {})
}

// Without keep-alive, each request has a connection of its own: no answer can be another's.
func TestWithoutKeepAlive(t *testing.T) {
	k := open(t, rawServer(t, func(text string, before int, conn net.Conn) {
		if before > 0 { // too late to notice
			fmt.Fprint(conn, response(200, "late"))
		}
		fmt.Fprint(conn, response(200, text))
	}), rawConfig+`,"keep_alive":false}`)
	askEach(t, k, 20, func() {})
}
