package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// refusingServer answers every request with 429.
func refusingServer(t *testing.T, retryAfter string) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			requests.Add(1)
		}
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// The answer to a refused request says so, and how long the server asks to wait: the worker then
// holds back all records.
func TestRefused(t *testing.T) {
	for after, want := range map[string]time.Duration{"": 0, "300": 300 * time.Second, "1000000": 400 * time.Second} {
		url, _ := refusingServer(t, after)
		k := open(t, url, `{"model":"m","prompt":"{text}","max_outage":400}`)
		a := ask(t, k, `{"text":"first"}`)
		if a.Verdict != plugins.Retry || a.Server != plugins.ServerRefuses || a.After != want || !strings.Contains(a.Message, "429 Too Many Requests: slow down") {
			t.Errorf("Retry-After %q: %+v", after, a)
		}
	}
}

// A server that refuses everything, for example because the account is empty, stops the job.
func TestRefusesAll(t *testing.T) {
	url, _ := refusingServer(t, "")
	k := open(t, url, `{"model":"m","prompt":"{text}","max_outage":60}`)
	for range 3 {
		if a := ask(t, k, `{"text":"x"}`); a.Verdict != plugins.Retry {
			t.Fatalf("%+v", a)
		}
	}
	k.client.refused.since = time.Now().Add(-time.Minute)
	a := ask(t, k, `{"text":"x"}`)
	if fault.KindOf(a.Err) != fault.Stopped || !strings.Contains(a.Err.Error(), "has refused every request for 1m0s: the server answered 429 Too Many Requests: slow down") {
		t.Errorf("%+v", a)
	}
}

// One good answer shows that the server does not refuse everything.
func TestServedBetweenRefusals(t *testing.T) {
	refuse := new(atomic.Bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() {
			http.Error(w, "{}", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"yes"}}]}`))
	}))
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"{text}","max_outage":60}`)
	for _, refused := range []bool{true, false, true} {
		refuse.Store(refused)
		if a := ask(t, k, `{"text":"x"}`); (a.Verdict == plugins.Retry) != refused {
			t.Fatalf("refused %t: %+v", refused, a)
		}
		if refused {
			k.client.refused.since = k.client.refused.since.Add(-time.Minute)
		}
	}
}

// Whatever its status, an answer with Retry-After holds back all requests.
func TestRetryAfterOfAnyStatusHoldsBackAll(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, `{"error":{"message":"restarting"}}`, http.StatusInternalServerError)
	}))
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"{text}"}`)
	if a := ask(t, k, `{"text":"first"}`); a.Verdict != plugins.Retry || a.Server != plugins.ServerRefuses || a.After != time.Minute {
		t.Fatalf("%+v", a)
	}
}
