package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/jsonerr"
)

// problem is the body of every error.
type problem struct {
	Success bool   `json:"success"` // always false
	Error   string `json:"error"`
}

// fail responds with an error.
func fail(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, problem{Error: fmt.Sprintf(format, args...)})
}

// answer responds with a value as JSON.
func answer(w http.ResponseWriter, status int, value any) { write(w, status, encode(value)) }

// encode returns a value as a line of JSON.
func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil { // a figure that JSON does not have
		data = []byte(`{"success":false,"error":"encode the response"}`)
	}
	return append(data, '\n')
}

// write responds with encoded JSON.
func write(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// decode reads a JSON body into a value and rejects unknown members; false if it has
// responded with an error.
func decode(w http.ResponseWriter, r *http.Request, value any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber()
	var body any
	err := decoder.Decode(&body)
	if err == nil && decoder.More() {
		err = errors.New("more than one JSON value")
	}
	if err == nil {
		data, _ := json.Marshal(whole(body)) // it was JSON
		decoder = json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(value)
	}
	return !refuseBody(w, err, value)
}

// whole writes 2.0 as 2: some clients send every number with a fraction, and Go's decoder
// does not take that for an integer.
func whole(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = whole(member)
		}
	case []any:
		for i, element := range v {
			v[i] = whole(element)
		}
	case json.Number:
		if n, err := v.Float64(); err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n)
		}
	}
	return value
}

// drain reads the body of a request that needs none; false if it has responded with an
// error.
func drain(w http.ResponseWriter, r *http.Request) bool {
	_, err := io.Copy(io.Discard, r.Body)
	return !refuseBody(w, err, nil)
}

// refuseBody responds to a body that cannot be read into a value.
func refuseBody(w http.ResponseWriter, err error, value any) bool {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return false
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", large.Limit)
	case errors.Is(err, io.EOF):
		fail(w, http.StatusBadRequest, "the body is empty")
	default:
		fail(w, http.StatusBadRequest, "the body is not the expected JSON: %s", jsonerr.Explain(err, value, "members"))
	}
	return true
}

// cached is a value that is computed at most once a second, on request.
// While one request computes it, others get the value before.
type cached[T any] struct {
	compute func() T
	current atomic.Pointer[timed[T]]
	mu      sync.Mutex
}

type timed[T any] struct {
	value T
	until time.Time
}

func newCached[T any](compute func() T) *cached[T] { return &cached[T]{compute: compute} }

func (c *cached[T]) get() T {
	current := c.current.Load()
	if current != nil && (time.Now().Before(current.until) || !c.mu.TryLock()) {
		return current.value
	}
	if current == nil {
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if now := c.current.Load(); now != current { // another request was faster
		return now.value
	}
	fresh := &timed[T]{value: c.compute(), until: time.Now().Add(time.Second)}
	c.current.Store(fresh)
	return fresh.value
}

// drop makes the next get compute the value again.
func (c *cached[T]) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if current := c.current.Load(); current != nil {
		c.current.Store(&timed[T]{value: current.value})
	}
}
