package openai

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// body is the body of a request. Files are encoded while they are sent: hundreds of requests
// with images may be in flight.
type body struct {
	text  []byte
	files []inset
}

// inset is a file whose base64 belongs into the text, before the byte at.
type inset struct {
	at   int
	file []byte // of the record
}

// addImages adds the images of a record to the content of a message.
func (b *body) addImages(record plugins.Record, names []string) error {
	const before, after = `,{"type":"image_url","image_url":{"url":`, `}}`
	for _, name := range names {
		if file, ok := record.Fetched(name); ok {
			if file == nil { // a null
				continue
			}
			kind := http.DetectContentType(file) // names and servers are often wrong
			if !strings.HasPrefix(kind, "image/") {
				return fmt.Errorf("the file fetched as %q is not an image, but %s", name, kind)
			}
			b.text = append(b.text, before+`"data:`+kind+`;base64,`...)
			b.files = append(b.files, inset{len(b.text), file})
			b.text = append(b.text, `"`+after...)
			continue
		}
		urls, err := imageURLs(record, name)
		if err != nil {
			return err
		}
		for _, one := range urls {
			b.text = append(jsonline.AppendString(append(b.text, before...), one), after...)
		}
	}
	return nil
}

// size returns how many bytes are sent.
func (b *body) size() int64 {
	size := len(b.text)
	for _, one := range b.files {
		size += base64.StdEncoding.EncodedLen(len(one.file))
	}
	return int64(size)
}

// reader returns a reader of what is sent. It reads files only as long as their memory is
// valid.
func (b *body) reader(valid *lease) io.ReadCloser {
	if len(b.files) == 0 {
		return io.NopCloser(bytes.NewReader(b.text))
	}
	var pieces []io.Reader
	sent := 0
	for _, one := range b.files {
		pieces = append(pieces, bytes.NewReader(b.text[sent:one.at]), &encoder{file: one.file})
		sent = one.at
	}
	pieces = append(pieces, bytes.NewReader(b.text[sent:]))
	return io.NopCloser(&leased{io.MultiReader(pieces...), valid})
}

// encoder reads the base64 of a file.
type encoder struct {
	file   []byte // the rest
	buffer []byte
	unread []byte // of buffer
}

// encodedAtOnce is a multiple of 3: what is encoded needs no padding, except for the end.
const encodedAtOnce = 3 * 8 << 10

func (e *encoder) Read(p []byte) (int, error) {
	if len(e.unread) == 0 {
		if len(e.file) == 0 {
			return 0, io.EOF
		}
		n := min(len(e.file), encodedAtOnce)
		e.buffer = base64.StdEncoding.AppendEncode(e.buffer[:0], e.file[:n])
		e.unread, e.file = e.buffer, e.file[n:]
	}
	n := copy(p, e.unread)
	e.unread = e.unread[n:]
	return n, nil
}

// lease is the time for which the memory of a record's files is valid. A transport may go on
// reading a body after its request has ended.
type lease struct {
	mu    sync.Mutex
	ended bool
}

// end waits until no reader uses the memory. None does afterwards.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// leased reads while the lease lasts.
type leased struct {
	io.Reader
	valid *lease
}

var errEnded = errors.New("the request has ended")

func (l *leased) Read(p []byte) (int, error) {
	l.valid.mu.Lock()
	defer l.valid.mu.Unlock()
	if l.valid.ended {
		return 0, errEnded
	}
	return l.Reader.Read(p)
}
