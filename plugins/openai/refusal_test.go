package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/congestion"
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

// A record that is refused has used up an attempt. The others wait as long as the server asks,
// and lose none.
func TestLongPause(t *testing.T) {
	url, requests := refusingServer(t, "300")
	k := open(t, url, `{"model":"m","prompt":"{text}"}`)
	if a := ask(t, k, `{"text":"first"}`); a.Verdict != plugins.Retry || a.After != 300*time.Second {
		t.Fatalf("%+v", a)
	}
	for range 3 {
		a := ask(t, k, `{"text":"another"}`)
		if a.Verdict != plugins.Later || a.After < 250*time.Second || a.Figures != nil ||
			!strings.Contains(a.Message, "refuses requests for now (the server answered 429 Too Many Requests: slow down); the next one follows in 5m0s") {
			t.Errorf("%+v", a)
		}
	}
	if requests.Load() != 1 {
		t.Errorf("%d requests were sent", requests.Load())
	}
}

// A server that refuses everything, for example because the account is empty, stops the job
// before it has failed many records.
func TestRefusesAll(t *testing.T) {
	url, requests := refusingServer(t, "")
	k := open(t, url, `{"model":"m","prompt":"{text}","max_outage":60}`)
	now := time.Now()
	k.client.limiter.now = func() time.Time { return now }
	for i := range manyRefusals {
		now = now.Add(20 * time.Second) // no pause is longer meanwhile
		a := ask(t, k, `{"text":"x"}`)
		last := i == manyRefusals-1
		if !last && a.Verdict != plugins.Retry || last && fault.KindOf(a.Err) != fault.Stopped {
			t.Fatalf("attempt %d: %+v", i+1, a)
		}
		if last && !strings.Contains(a.Err.Error(), "has refused every request for 1m0s: the server answered 429 Too Many Requests: slow down") {
			t.Error(a.Err)
		}
	}
	if requests.Load() != manyRefusals {
		t.Errorf("%d requests were sent", requests.Load())
	}
}

// A record that meets a pause learns its reason, even if the refused request has just ended.
func TestPauseHasItsReason(t *testing.T) {
	url, _ := refusingServer(t, "")
	k := open(t, url, `{"model":"m","prompt":"{text}"}`)
	place, _ := k.client.limiter.acquire(t.Context())
	k.client.limiter.release(place, congestion.Refused, time.Hour, "slow down")
	if a := ask(t, k, `{"text":"x"}`); a.Verdict != plugins.Later || !strings.Contains(a.Message, "(slow down)") {
		t.Errorf("%+v", a)
	}
}

// However long a server asks to wait, the job waits for max_outage at most. If the server then
// refuses the next request too, the job stops.
func TestRetryAfterIsLimitedByMaxOutage(t *testing.T) {
	url, requests := refusingServer(t, "1000000")
	k := open(t, url, `{"model":"m","prompt":"{text}","max_outage":5}`)
	now := time.Now()
	k.client.limiter.now = func() time.Time { return now }
	if a := ask(t, k, `{"text":"first"}`); a.Verdict != plugins.Retry || a.After != 5*time.Second {
		t.Fatalf("%+v", a)
	}
	if pause := k.client.limiter.window.Pause(now); pause != 5*time.Second {
		t.Errorf("a pause of %s", pause)
	}
	now = now.Add(5 * time.Second)
	if a := ask(t, k, `{"text":"second"}`); fault.KindOf(a.Err) != fault.Stopped || requests.Load() != 2 {
		t.Errorf("after %d requests: %+v", requests.Load(), a)
	}
}

// Whatever its status, an answer with Retry-After holds back all requests, as the worker does.
func TestRetryAfterOfAnyStatusHoldsBackAll(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, `{"error":{"message":"restarting"}}`, http.StatusInternalServerError)
	}))
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"{text}"}`)
	if a := ask(t, k, `{"text":"first"}`); a.Verdict != plugins.Retry || a.After != time.Minute {
		t.Fatalf("%+v", a)
	}
	if a := ask(t, k, `{"text":"second"}`); a.Verdict != plugins.Later {
		t.Errorf("%+v", a)
	}
}
