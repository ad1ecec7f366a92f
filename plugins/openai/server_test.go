package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
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
	host, agent         string
	length              int64
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
	s.requests = append(s.requests, seen{r.URL.Path, r.Header.Get("Authorization"), body, r.Host, r.UserAgent(), r.ContentLength})
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
	case text == "not UTF-8":
		fail(200, "{\"choices\":[{\"text\":\"a\xff\xfeb\"}]}")
	case text == "plain, not UTF-8":
		w.Header().Set("Content-Type", "text/plain")
		fail(500, "bad \xff byte")
	case text == "huge":
		fail(200, `{"x":"`+strings.Repeat("x", 2<<20)+`"}`)
	case text == "redirect":
		http.Redirect(w, r, "http://elsewhere.example/", http.StatusTemporaryRedirect)
	case text == "hang":
		<-r.Context().Done()
	case text == "close":
		panic(http.ErrAbortHandler)
	case text == "cut":
		w.Header().Set("Content-Length", "1000")
		fail(200, `{"choices":[`)
	case text == "plain":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "the prompt\nis too long")
	case text == "error with 200":
		fail(200, `{"error":{"message":"the provider is overloaded"}}`)
	case text == "list":
		fail(200, `[1]`)
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
	data, err := json.Marshal(resolve.OpenAIConfig{URL: base, Config: json.RawMessage(config)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 1}, data)
}

// A fetched image is sent as a data URL; a file that is not an image fails its record.
func TestFetchedImage(t *testing.T) {
	fake := &fakeServer{times: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(fake.serve))
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"What?","images":["picture"]}`)
	send := func(file string) plugins.Answer {
		batch := plugins.NewBatch([][]byte{[]byte(`{"url":"x"}`)}).WithFetched([]string{"picture"}, [][]byte{[]byte(file)})
		return k.Answer(t.Context(), batch.At(0))
	}
	if a := send("\x89PNG\r\n\x1a\n"); a.Verdict != plugins.Lines || string(a.Lines[0]) != `{"url":"x","response":"<What?>"}` {
		t.Errorf("%+v", a)
	}
	sent, _ := json.Marshal(fake.requests[len(fake.requests)-1].body)
	if !strings.Contains(string(sent), `{"url":"data:image/png;base64,iVBORw0KGgo="}`) {
		t.Errorf("%s", sent)
	}
	if a := send("%PDF-1.7"); a.Verdict != plugins.Failed || !strings.Contains(a.Message, `"picture" is not an image, but application/pdf`) {
		t.Errorf("%+v", a)
	}
}

// An answer of 200 MB is refused without being read: announced, or as it arrives.
func TestEnormousAnswer(t *testing.T) {
	const size = 200 << 20
	for name, announced := range map[string]bool{"announced": true, "chunked": false} {
		t.Run(name, func(t *testing.T) {
			written := make(chan int64, 1)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, `{"data":[]}`)
					return
				}
				if announced {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				n, part := int64(0), bytes.Repeat([]byte(" "), 1<<20)
				for err := error(nil); err == nil && n < size; n += int64(len(part)) {
					_, err = w.Write(part)
				}
				written <- n
			}))
			t.Cleanup(s.Close)
			k := open(t, s.URL, `{"model":"m","prompt":"x","max_body":1000000}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			a := ask(t, k, `{}`)
			runtime.ReadMemStats(&after)
			if a.Verdict != plugins.Failed || !strings.Contains(a.Message, "too large: over 1000000 bytes") {
				t.Errorf("%+v", a)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
				t.Errorf("it allocated %d bytes", grown)
			}
			if n := <-written; n > size/2 {
				t.Errorf("the server could write %d bytes", n)
			}
		})
	}
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
