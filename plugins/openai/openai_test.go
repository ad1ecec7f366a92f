package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// A template makes a request of each record; the answer becomes a member.
func TestTemplates(t *testing.T) {
	s := newServer(t)
	for name, test := range map[string]struct{ config, record, path, want string }{
		"chat":        {`{"model":"m","prompt":"Sum: {text}","system":"Be brief in {lang}.","output":"s","body":{"temperature":0}}`, `{"text":"a \"b\" & <c>","lang":"en","n":1}`, "/v1/chat/completions", `{"text":"a \"b\" & <c>","lang":"en","n":1,"s":"<Sum: a \"b\" & <c>>"}`},
		"completions": {`{"model":"m","prompt":"{a.b} {n} {{x}}","endpoint":"completions"}`, `{"a":{"b":"c"},"n":1.50}`, "/v1/completions", `{"a":{"b":"c"},"n":1.50,"response":"<c 1.50 {x}>"}`},
		"embeddings":  {`{"model":"m","prompt":"{text}","endpoint":"embeddings"}`, `{"text":"t"}`, "/v1/embeddings", `{"text":"t","embedding":[0.5,-1]}`},
		"indented":    {`{"model":"m","prompt":"{text}","endpoint":"embeddings"}`, `{"text":"indented"}`, "/v1/embeddings", `{"text":"indented","embedding":[0.5,-1]}`},
		"images":      {`{"model":"m","prompt":"What?","images":["pictures"]}`, `{"pictures":["data:image/png;base64,AA==","https://h.example/p.png"]}`, "/v1/chat/completions", `{"pictures":["data:image/png;base64,AA==","https://h.example/p.png"],"response":"<What?>"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, open(t, s.URL+"/v1/", test.config), test.record)
			if a.Verdict != plugins.Lines || string(a.Lines[0]) != test.want {
				t.Errorf("%v %s %q", a.Verdict, a.Message, a.Lines)
			}
			last := s.requests[len(s.requests)-1]
			if last.path != test.path || last.body["model"] != "m" || last.authorization != "" {
				t.Errorf("sent %+v", last)
			}
		})
	}
}

// Lines of a batch file are sent as they are. The result is what package record completes.
func TestBatchLines(t *testing.T) {
	s := newServer(t)
	k := open(t, s.URL+"/v1", `{}`)
	a := ask(t, k, `{"custom_id":"r-1","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","seed":1.0}}`)
	const want = `{"custom_id":"r-1","response":{"status_code":200,"request_id":"req-1","body":{"choices":[{"text":"\u003cp\u003e"}]}}}`
	if a.Verdict != plugins.Lines || string(a.Lines[0]) != want {
		t.Fatalf("%v %s %q", a.Verdict, a.Message, a.Lines)
	}
	// A server may break lines and give no id.
	a = ask(t, k, `{"custom_id":"r-2","url":"/v1/completions","body":{"model":"m","prompt":"indented"}}`)
	if a.Verdict != plugins.Lines || string(a.Lines[0]) != `{"custom_id":"r-2","response":{"status_code":200,"body":{"choices":[{"text":"i"}],"data":[{"embedding":[0.5,-1]}]}}}` {
		t.Errorf("%v %s %q", a.Verdict, a.Message, a.Lines)
	}
	for record, want := range map[string]string{
		`{"text":"x"}`: "no custom_id",
		`{"custom_id":7,"url":"/v1/completions","body":{}}`:                                         "custom_id 7 is not a text",
		`{"custom_id":"a","method":"GET","url":"/v1/models","body":{}}`:                             `method "GET"`,
		`{"custom_id":"a","url":"/v1/completions"}`:                                                 "no body",
		`{"custom_id":"a","url":"http://other.example/v1/x","body":{}}`:                             "must be a path",
		`{"custom_id":"a","url":"/v1/../admin","body":{}}`:                                          "must be a path",
		`{"custom_id":"a","url":"/v1/x?y=1","body":{}}`:                                             "must be a path",
		`{"custom_id":"a","url":"/v1/completions","body":{"model":"m","prompt":"p","stream":true}}`: "asks for a stream",
	} {
		if a := ask(t, k, record); a.Verdict != plugins.Failed || !strings.Contains(a.Message, want) {
			t.Errorf("%s: %v %q, want %q", record, a.Verdict, a.Message, want)
		}
	}
	if len(s.requests) != 2 {
		t.Errorf("%d requests, want 2", len(s.requests))
	}
}

// Some requests in files for vllm run-batch go next to the base URL.
func TestAddress(t *testing.T) {
	for _, test := range [][3]string{
		{"http://h:1/v1", "/v1/score", "http://h:1/v1/score"},
		{"http://h:1/v1", "/score", "http://h:1/score"},
		{"http://h:1/pre/v1", "/v2/rerank", "http://h:1/pre/v2/rerank"},
		{"http://h:1", "/rerank", "http://h:1/rerank"},
		{"http://h:1/v1", "/v2/admin", ""},
	} {
		base, _ := parseBase(test[0])
		got, err := (&settings{base: base}).address(test[1])
		if (err != nil) != (test[2] == "") || err == nil && got.String() != test[2] {
			t.Errorf("%s %s: %v, %v", test[0], test[1], got, err)
		}
	}
}

// A proxy that does not answer must not look like the server.
func TestProxyError(t *testing.T) {
	err := &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	if got := plain(fmt.Errorf("Post: %w", err)); !strings.Contains(got, "the proxy") || !strings.HasSuffix(got, ": connection refused") {
		t.Error(got)
	}
}

// Requests have what servers and gateways expect; the user's headers take precedence.
func TestRequestHeader(t *testing.T) {
	s := newServer(t)
	for config, agent := range map[string]string{`{}`: "gpurun", `{"headers":{"user-agent":"mine"}}`: "mine"} {
		ask(t, open(t, s.URL+"/v1", config), `{"custom_id":"a","url":"/v1/completions","body":{"prompt":"p"}}`)
		last := s.requests[len(s.requests)-1]
		if last.agent != agent || "http://"+last.host != s.URL || last.length != int64(len(`{"prompt":"p"}`)) {
			t.Errorf("%s: sent %+v", config, last)
		}
	}
}

// The largest limit of an answer is none.
func TestLargestBody(t *testing.T) {
	k := open(t, newServer(t).URL+"/v1", `{"model":"m","prompt":"x","endpoint":"completions","max_body":9223372036854775807}`)
	if a := ask(t, k, `{}`); a.Verdict != plugins.Lines {
		t.Errorf("%v %s", a.Verdict, a.Message)
	}
}

// Whatever a server does costs only the record, and the verdict tells whether to try again.
func TestMisbehavingServer(t *testing.T) {
	s := newServer(t)
	t.Setenv("THE_KEY", "sk-secret")
	k := open(t, s.URL+"/v1", `{"model":"m","prompt":"{text}","endpoint":"completions","timeout":0.5,"max_body":1048576,"api_key_env":"THE_KEY"}`)
	for text, want := range map[string]struct {
		verdict plugins.Verdict
		message string
		after   time.Duration
	}{
		"fine":           {plugins.Lines, "", 0},
		"429 then fine":  {plugins.Retry, "429 Too Many Requests: slow down", 2 * time.Second},
		"500":            {plugins.Retry, "500 Internal Server Error: internal", 0},
		"400":            {plugins.Failed, "400 Bad Request: max_tokens is too large", 0},
		"422":            {plugins.Failed, `field required`, 0},
		"401":            {plugins.Failed, "Incorrect API key provided: …; the API key comes from the environment variable THE_KEY", 0},
		"html":           {plugins.Failed, `"text/html", not with JSON`, 0},
		"truncated":      {plugins.Retry, "not valid JSON", 0},
		"not UTF-8":      {plugins.Failed, "the server's answer is not valid UTF-8", 0},
		"huge":           {plugins.Failed, "too large: over 1048576 bytes, which max_body", 0},
		"redirect":       {plugins.Failed, "redirects to http://elsewhere.example/, which gpurun does not follow", 0},
		"hang":           {plugins.Retry, "did not answer within 500ms", 0},
		"close":          {plugins.Retry, "the connection failed: the server closed the connection without an answer", 0},
		"cut":            {plugins.Retry, "the connection failed: the server closed the connection in the middle of its answer", 0},
		"plain":          {plugins.Failed, "413 Request Entity Too Large: the prompt is too long", 0},
		"nothing":        {plugins.Failed, "has no choices", 0},
		"list":           {plugins.Failed, "the server's answer does not have the form of an answer to /completions", 0},
		"error with 200": {plugins.Failed, "is an error, although its status is 200: the provider is overloaded", 0},
	} {
		t.Run(text, func(t *testing.T) {
			a := ask(t, k, `{"text":"`+text+`"}`)
			if a.Verdict != want.verdict || !strings.Contains(a.Message, want.message) || a.After != want.after || strings.Contains(a.Message, "secret") {
				t.Errorf("%v %q after %s", a.Verdict, a.Message, a.After)
			}
		})
	}
}

// Nor does an answer to a line of a batch file get other characters than the server sent; a
// message with such bytes must not break the output.
func TestNotUTF8(t *testing.T) {
	k := open(t, newServer(t).URL+"/v1", `{}`)
	for text, want := range map[string]string{"not UTF-8": "not valid UTF-8", "plain, not UTF-8": "500 Internal Server Error: bad \ufffd byte"} {
		a := ask(t, k, `{"custom_id":"a","url":"/v1/completions","body":{"prompt":"`+text+`"}}`)
		if a.Verdict == plugins.Lines || !strings.Contains(a.Message, want) || !utf8.ValidString(a.Message) {
			t.Errorf("%s: %v %q %q", text, a.Verdict, a.Message, a.Lines)
		}
	}
}

// A certificate that does not verify is no fault of the record: the job cannot work.
func TestCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	s.Config.ErrorLog = nil
	err := tryOpen(t, New().(*kernel), s.URL, `{"model":"m","prompt":"x"}`)
	if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}

// What is wrong with the configuration is reported before any work.
func TestBadConfiguration(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("BROKEN_KEY", "sk-a\nb")
	for _, test := range [][3]string{
		{"http://127.0.0.1/v1", `{"modle":"m"}`, `unknown field "modle"`},
		{"http://127.0.0.1/v1", `{"model":"m"}`, "there is no prompt"},
		{"http://127.0.0.1/v1", `{"prompt":"x"}`, "model is missing"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"{text"}`, "unpaired"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"a } b"}`, "unpaired"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"{}"}`, "{} is not the name of a member"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","endpoint":"audio"}`, `endpoint "audio"`},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","concurrency":0}`, "concurrency 0"},
		{"http://127.0.0.1/v1", `{"truncated":"drop"}`, `truncated "drop": use keep or fail`},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","timeout":1e-10}`, "timeout 1e-10: use a number of seconds"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","body":{"stream":true}}`, `body sets "stream"`},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","endpoint":"embeddings","system":"y"}`, "are for endpoint chat"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","concurrency":"8"}`, "concurrency must be a whole number, not a string"},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","headers":{"A B":"x"}}`, `headers: "A B" is not the name of a header`},
		{"http://127.0.0.1/v1", `{"model":"m","prompt":"x","headers":{"A":"x\ny"}}`, `headers: the value of A has a character that no header can have`},
		{"http://127.0.0.1/v1", `{"api_key_env":"BROKEN_KEY"}`, "the API key in the environment variable BROKEN_KEY has a character that no header can have"},
		{"127.0.0.1:8000", `{}`, "is not a URL"},
		{"ftp://h/v1", `{}`, "is not a URL"},
		{"http://u:p@h/v1", `{}`, "without a user"},
		{"https://api.example/v1", `{}`, "set the environment variable OPENAI_API_KEY"},
		{"https://api.example/v1", `{"api_key_env":"MY_KEY"}`, "set the environment variable MY_KEY"},
	} {
		data, _ := json.Marshal(resolve.OpenAIConfig{URL: test[0], Config: json.RawMessage(test[1])})
		if _, err := New().Describe(t.Context(), data); err == nil || !strings.Contains(err.Error(), test[2]) {
			t.Errorf("%s %s: %v, want %q", test[0], test[1], err, test[2])
		}
	}
}

// A server that answers 404 may have its API below /v1, which the URL lacks.
func TestMissingV1(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"{text}"}`)
	if a := ask(t, k, `{"text":"x"}`); a.Verdict != plugins.Failed || !strings.Contains(a.Message, "404 Not Found") || !strings.HasSuffix(a.Message, "; is "+s.URL+"/v1 the right URL?") {
		t.Errorf("%v %q", a.Verdict, a.Message)
	}
	k = open(t, s.URL+"/v1", `{"model":"m","prompt":"{text}"}`)
	if a := ask(t, k, `{"text":"x"}`); strings.Contains(a.Message, "right URL") {
		t.Errorf("%q", a.Message)
	}
}
