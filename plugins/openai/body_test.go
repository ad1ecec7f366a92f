package openai

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gpurun/gpurun/plugins"
)

// What is sent has the base64 of each file in its place, and the size that was announced.
func TestBodyWithFiles(t *testing.T) {
	for _, size := range []int{0, 1, 2, 3, encodedAtOnce - 1, encodedAtOnce, encodedAtOnce + 1, 3*encodedAtOnce + 2} {
		first, second := bytes.Repeat([]byte{0xfb, 1, 2}, size)[:size], []byte("second")
		b := body{text: []byte("<|><>"), files: []inset{{2, first}, {4, second}}}
		want := "<|" + base64.StdEncoding.EncodeToString(first) + "><" + base64.StdEncoding.EncodeToString(second) + ">"
		for name, limit := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		} {
			got, err := io.ReadAll(limit(b.reader(new(lease))))
			if err != nil || string(got) != want || b.size() != int64(len(want)) {
				t.Errorf("a file of %d bytes, %s: %d of %d bytes are right, %d announced, %v", size, name, len(got), len(want), b.size(), err)
			}
		}
	}
}

// A body that the transport still reads after its request has ended does not touch the
// record's memory.
func TestBodyOutlivesRequest(t *testing.T) {
	b := body{text: []byte(`""`), files: []inset{{1, make([]byte, 1<<20)}}}
	var valid lease
	r := b.reader(&valid)
	if _, err := r.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	valid.end()
	if n, err := r.Read(make([]byte, 100)); n != 0 || !errors.Is(err, errEnded) {
		t.Errorf("%d bytes, %v", n, err)
	}

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		if r.Method == http.MethodPost { // it answers before it has read the request
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
		_, _ = io.WriteString(w, `{"error":{"message":"too large"}}`)
	}))
	t.Cleanup(s.Close)
	k := open(t, s.URL, `{"model":"m","prompt":"What?","images":["picture"]}`)
	file := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 8<<20)...)
	batch := plugins.NewBatch([][]byte{[]byte(`{}`)}).WithFetched([]string{"picture"}, [][]byte{file})
	a := k.Answer(t.Context(), batch.At(0))
	clear(file) // the race detector reports a reader
	if a.Verdict != plugins.Failed && a.Verdict != plugins.Retry || !strings.Contains(a.Message, "too large") && !strings.Contains(a.Message, "connection") {
		t.Errorf("%+v", a)
	}
}
