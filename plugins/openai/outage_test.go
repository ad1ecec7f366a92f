package openai

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// serveAt starts a fake server at an address.
func serveAt(t *testing.T, address string) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("NOT TESTED: a server that comes back, since its port is taken: %v", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc((&fakeServer{times: map[string]int{}}).serve))
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// While a server cannot be reached, records wait and lose no attempt. When it is back, they
// are sent.
func TestOutage(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	k := open(t, s.URL, `{"model":"m","prompt":"{text}","concurrency":4}`)
	if a := ask(t, k, `{"text":"before"}`); a.Verdict != plugins.Lines {
		t.Fatalf("%+v", a)
	}
	address := s.Listener.Addr().String()
	s.Close()
	for range 3 {
		a := ask(t, k, `{"text":"during"}`)
		if a.Verdict != plugins.Later || a.After <= 0 || a.After > longestPing ||
			!strings.Contains(a.Message, s.URL+" cannot be reached (connection refused); trying for up to 5m0s") {
			t.Fatalf("%+v", a)
		}
	}
	serveAt(t, address)
	for deadline := time.Now().Add(20 * time.Second); ; {
		a := ask(t, k, `{"text":"after"}`)
		if a.Verdict == plugins.Lines {
			break
		}
		if a.Verdict != plugins.Later || time.Now().After(deadline) {
			t.Fatalf("%+v", a)
		}
		time.Sleep(a.After)
	}
	if a := ask(t, k, `{"text":"again"}`); a.Verdict != plugins.Lines {
		t.Errorf("%+v", a)
	}
}

// An outage that lasts too long stops the job; no record fails.
func TestLongOutage(t *testing.T) {
	s := newServer(t)
	k := open(t, s.URL, `{"model":"m","prompt":"{text}","max_outage":0}`)
	s.Close()
	a := ask(t, k, `{"text":"x"}`)
	if fault.KindOf(a.Err) != fault.Stopped || !strings.Contains(a.Err.Error(), s.URL+" could not be reached for 0s: connection refused") {
		t.Errorf("%+v", a)
	}
}

// Only an outage is one: what a single record causes, while the server is there, costs the
// record an attempt.
func TestOutageIsNotARecord(t *testing.T) {
	var gateway atomic.Bool
	fake := &fakeServer{times: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gateway.Load() {
			http.Error(w, "no server behind it", http.StatusBadGateway)
			return
		}
		fake.serve(w, r)
	}))
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"{text}","timeout":0.2}`)
	for _, text := range []string{"close", "hang", "500"} {
		if a := ask(t, k, fmt.Sprintf(`{"text":%q}`, text)); a.Verdict != plugins.Retry {
			t.Errorf("%s: %+v", text, a)
		}
	}
	gateway.Store(true)
	k.client.outage.answered = time.Time{} // the pings above no longer count
	if a := ask(t, k, `{"text":"x"}`); a.Verdict != plugins.Later || !strings.Contains(a.Message, "it answers 502 Bad Gateway") {
		t.Errorf("%+v", a)
	}
}

// A server that is not there stops the job before any record is sent.
func TestUnreachableFromTheStart(t *testing.T) {
	s := newServer(t)
	s.Close()
	err := tryOpen(t, New().(*kernel), s.URL+"/v1", `{"model":"m","prompt":"x","max_outage":0}`)
	if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), s.URL+"/v1 cannot be reached: connection refused") {
		t.Errorf("%v", err)
	}
}

// A server that the caller runs names its model.
func TestModelOfTheServer(t *testing.T) {
	models := ""
	fake := &fakeServer{times: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, models)
			return
		}
		fake.serve(w, r)
	}))
	t.Cleanup(s.Close)
	for list, want := range map[string]string{
		`{"data":[{"id":"m1"}]}`:                          "",
		`{"data":[{"id":"m1"},{"id":"a","parent":"m1"}]}`: "",
		`{"data":[]}`: "the server has none",
		`{"data":[{"id":"m1"},{"id":"m2","parent":null}]}`: "the server has several: m1, m2",
		`<html>`: "does not name one",
	} {
		models = list
		k := For(Server{Concurrency: 2}).(*kernel)
		err := tryOpen(t, k, s.URL, `{"prompt":"{text}"}`)
		if want == "" && (err != nil || ask(t, k, `{"text":"x"}`).Verdict != plugins.Lines || fake.requests[len(fake.requests)-1].body["model"] != "m1") ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", list, err, want)
		}
	}
}
