package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// fakeServer is a server with OpenAI's API. The text of a request decides how it answers:
// "429 then fine" answers 429 the first time.
type fakeServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen
	times    map[string]int
}

type seen struct {
	path, authorization string
	body                map[string]any
}

func newServer(t *testing.T) *fakeServer {
	s := &fakeServer{times: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) serve(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var body map[string]any
	if json.Unmarshal(data, &body) != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	text := textOf(body)
	s.mu.Lock()
	s.requests = append(s.requests, seen{r.URL.Path, r.Header.Get("Authorization"), body})
	s.times[text]++
	first := s.times[text] == 1
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Request-Id", "req-1")
	fail := func(status int, text string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	switch {
	case text == "429 then fine" && first:
		w.Header().Set("Retry-After", "2")
		fail(429, `{"error":{"message":"slow down"}}`)
	case text == "500":
		fail(500, `{"error":"internal"}`)
	case text == "400":
		fail(400, `{"error":{"message":"max_tokens is too large"}}`)
	case text == "422":
		fail(422, `{"detail":[{"msg":"field required"}]}`)
	case text == "401":
		fail(401, `{"error":{"message":"Incorrect API key provided: `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`"}}`)
	case text == "html":
		w.Header().Set("Content-Type", "text/html")
		fail(200, "<html>")
	case text == "truncated":
		fail(200, `{"choices":[`)
	case text == "huge":
		fail(200, `{"x":"`+strings.Repeat("x", 2<<20)+`"}`)
	case text == "redirect":
		http.Redirect(w, r, "http://elsewhere.example/", http.StatusTemporaryRedirect)
	case text == "hang":
		<-r.Context().Done()
	case text == "close":
		panic(http.ErrAbortHandler)
	case text == "nothing":
		fail(200, `{"choices":[]}`)
	case text == "indented":
		w.Header().Del("X-Request-Id")
		fail(200, "{\n\t\"choices\": [{\"text\": \"i\"}],\r\n\t\"data\": [{\"embedding\": [\n0.5,\n-1\n]}]\n}\n")
	case strings.HasSuffix(r.URL.Path, "/embeddings"):
		fail(200, `{"data":[{"embedding":[0.5,-1]}],"usage":{"total_tokens":3}}`)
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": "<" + text + ">"}}}})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"text": "<" + text + ">"}}})
	}
}

// textOf returns the text of a request.
func textOf(body map[string]any) string {
	for _, name := range []string{"prompt", "input"} {
		if text, ok := body[name].(string); ok {
			return text
		}
	}
	messages, _ := body["messages"].([]any)
	if len(messages) == 0 {
		return ""
	}
	last, _ := messages[len(messages)-1].(map[string]any)
	if text, ok := last["content"].(string); ok {
		return text
	}
	parts, _ := last["content"].([]any)
	first, _ := parts[0].(map[string]any)
	text, _ := first["text"].(string)
	return text
}

// open opens the kernel with a configuration.
func open(t *testing.T, base, config string) *kernel {
	t.Helper()
	k := New().(*kernel)
	if err := tryOpen(t, k, base, config); err != nil {
		t.Fatal(err)
	}
	return k
}

func tryOpen(t *testing.T, k *kernel, base, config string) error {
	t.Helper()
	data, err := json.Marshal(plugins.OpenAIConfig{URL: base, Config: json.RawMessage(config)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 1}, data)
}

func ask(t *testing.T, k *kernel, record string) plugins.Answer {
	t.Helper()
	began := time.Now()
	a := k.Answer(t.Context(), plugins.NewBatch([][]byte{[]byte(record)}).At(0))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the answer took %s", took)
	}
	return a
}
