// Package openaitest is a server with OpenAI's API, for tests and benchmarks: it answers
// after a latency that depends on the request alone, misbehaves as it is told to, and counts
// what it is asked.
package openaitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Trouble is how the server answers a request instead of answering it well.
type Trouble struct {
	// Status is the HTTP status of the answer, with an error as its body; 0 for a good answer.
	Status int
	// RetryAfter is the value of that header, if any.
	RetryAfter string
	// Hang never answers; Close closes the connection instead.
	Hang, Close bool
}

// Options configure a server.
type Options struct {
	// Latency is how long the request with a number takes; nil for no time.
	Latency func(number int) time.Duration
	// Trouble is what is wrong with the attempt, from 1, at a request; nil for nothing.
	Trouble func(number, attempt int) Trouble
	// NoUsage leaves the token counts out.
	NoUsage bool
}

// Server is a running server. A request's text contains the word record and its number:
// "Summarize record 17".
type Server struct {
	// URL is the base URL, which ends in /v1.
	URL     string
	options Options
	server  http.Server
	done    chan struct{}

	mu          sync.Mutex
	attempts    map[int]int
	first, last time.Time
	inFlight    int
	most        int
}

// Start starts a server on a loopback port.
func Start(options Options) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		URL: "http://" + listener.Addr().String() + "/v1", options: options,
		done: make(chan struct{}), attempts: make(map[int]int),
	}
	s.server.Handler = s
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

// Close ends the server and all requests.
func (s *Server) Close() {
	close(s.done)
	_ = s.server.Close()
}

// Attempts returns how often each request was sent.
func (s *Server) Attempts() map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.attempts)
}

// Total returns how many requests were sent in all.
func (s *Server) Total() (n int) {
	for _, attempts := range s.Attempts() {
		n += attempts
	}
	return n
}

// Took returns how long the server was in use: from the first request to the last answer.
// Most is how many requests it had at a time at most.
func (s *Server) Took() (took time.Duration, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Sub(s.first), s.most
}

// Reset forgets all requests.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = make(map[int]int)
	s.first, s.last, s.most = time.Time{}, time.Time{}, 0
}

// begin counts a request.
func (s *Server) begin(number int) (attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() {
		s.first = time.Now()
	}
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.attempts[number]++
	return s.attempts[number]
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	s.last = time.Now()
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
		return
	}
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body)
	body.Reset()
	if _, err := body.ReadFrom(r.Body); err != nil {
		return
	}
	number := numberIn(body.Bytes())
	attempt := s.begin(number)
	defer s.end()
	if s.options.Latency != nil && !s.sleep(r, s.options.Latency(number)) {
		return
	}
	if s.options.Trouble != nil {
		if t := s.options.Trouble(number, attempt); t != (Trouble{}) {
			s.misbehave(w, r, t)
			return
		}
	}
	answer := s.answer(r.URL.Path, number)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = io.WriteString(w, answer)
}

// sleep waits, and returns false if the client or the server ended meanwhile.
func (s *Server) sleep(r *http.Request, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.done:
	}
	return false
}

func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, t Trouble) {
	switch {
	case t.Hang:
		s.sleep(r, time.Hour)
		return
	case t.Close:
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if t.RetryAfter != "" {
		w.Header().Set("Retry-After", t.RetryAfter)
	}
	w.WriteHeader(t.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": fmt.Sprintf("trouble %d", t.Status)}})
}

// answer is the body of a good answer: it depends on the request's number alone.
func (s *Server) answer(path string, number int) string {
	usage := fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, Prompt(number), Completion(number), Prompt(number)+Completion(number))
	if strings.HasSuffix(path, "/embeddings") {
		usage = fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"total_tokens":%d}`, Prompt(number), Prompt(number))
	}
	if s.options.NoUsage {
		usage = ""
	}
	switch {
	case strings.HasSuffix(path, "/embeddings"):
		return fmt.Sprintf(`{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[%d,0.5]}]%s}`, number, usage)
	case strings.HasSuffix(path, "/chat/completions"):
		return fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"The answer to record %d."},"finish_reason":"stop"}]%s}`, number, number, usage)
	}
	return fmt.Sprintf(`{"id":"cmpl-%d","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,"text":"The answer to record %d.","finish_reason":"stop","logprobs":null}]%s}`, number, number, usage)
}

// Prompt and Completion are how many tokens a request uses.
func Prompt(number int) int { return 10 + number%7 }

// Completion is the number of tokens of an answer.
func Completion(number int) int { return 20 + number%11 }

// numberIn returns the number of a request, -1 if it has none.
func numberIn(body []byte) int {
	_, rest, found := bytes.Cut(body, []byte("record "))
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(string(rest[:end]))
	if !found || err != nil {
		return -1
	}
	return n
}
