package decode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk/input/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Stream is an input that is read once, from start to end. Its kind is known when its first bytes
// have arrived.
type Stream struct {
	name, want string // name is what messages call it
	columns    []string
	begin      func() // to recognize it, once
	begun      chan struct{}
	done       chan struct{}
	kind       Kind          // its format is valid once begun is closed, all of it once done is
	content    io.ReadCloser // the same
	err        error         // the same
}

// NewStream returns the stream of a reader. want is the name of its format, "" to recognize it;
// columns are those that are read, nil for all.
func NewStream(r io.Reader, name, want string, columns []string) *Stream {
	s := &Stream{name: name, want: want, columns: columns, begun: make(chan struct{}), done: make(chan struct{})}
	s.begin = sync.OnceFunc(func() { go s.recognize(r) })
	return s
}

// Await waits until the kind of the stream is known. If its first bytes take longer than patience,
// Await gives up, unless the format that was asked for has columns that decide how a job begins.
func (s *Stream) Await(ctx context.Context, patience time.Duration) (kind Kind, known bool) {
	s.begin()
	var late <-chan time.Time
	if f, err := byName(s.want); err != nil || f.Columns == nil {
		late = time.After(patience)
	}
	select {
	case <-s.begun:
	case <-late:
		return kind, false
	case <-ctx.Done():
		return kind, false
	}
	select {
	case <-s.done:
		return s.kind, s.err == nil
	case <-ctx.Done():
		return kind, false
	}
}

// recognize reads as much as shows what the stream is.
func (s *Stream) recognize(r io.Reader) {
	defer close(s.done)
	s.err = s.findFormat(r)
	close(s.begun)
	if s.err != nil || s.kind.format.Columns == nil {
		return
	}
	var read bytes.Buffer
	s.kind.findColumns(io.TeeReader(s.content, &read), s.columns)
	s.content = content{io.MultiReader(&read, s.content), s.content}
}

// content is read from one place and closed at another.
type content struct {
	io.Reader
	io.Closer
}

// findFormat undoes compression and recognizes the format by its first bytes.
func (s *Stream) findFormat(r io.Reader) (err error) {
	head, whole, r := firstBytes(r)
	s.content = io.NopCloser(r)
	if c := compressionOf(head); c != nil {
		unpacked, err := c.open(r, runtime.GOMAXPROCS(0))
		if err != nil {
			return err
		}
		head, whole, r = firstBytes(unpacked)
		s.content = content{r, unpacked}
	}
	if s.kind.format, err = formatOf(head, whole, s.want, s.name, ""); err != nil {
		return err
	}
	if s.kind.format.Stream == nil {
		return fault.UnknownFormat.New("%s is %s, which cannot be read from a stream; name a file", s.name, s.kind.format.Name)
	}
	return checkColumns(s.kind.format, s.columns, s.name)
}

// Lines decodes the stream. Everything that is wrong with it is an error of Read. Close must not be
// called during a Read.
func (s *Stream) Lines(ctx context.Context, options format.Options) format.Lines {
	l := &streamLines{open: func() (format.Lines, error) { return s.decode(ctx, options) }}
	return format.Lines{ReadCloser: l, First: 1, Rows: l.rows, Blobs: l.blobs}
}

// streamLines are opened by the first Read.
type streamLines struct {
	open  func() (format.Lines, error)
	lines format.Lines
	err   error
}

func (l *streamLines) rows() bool { return l.lines.CountsRows() }

func (l *streamLines) blobs() []format.Blob {
	if l.lines.Blobs == nil {
		return nil
	}
	return l.lines.Blobs()
}

func (l *streamLines) Read(p []byte) (int, error) {
	if l.lines.ReadCloser == nil && l.err == nil {
		l.lines, l.err = l.open()
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.lines.Read(p)
}

func (l *streamLines) Close() error {
	if l.lines.ReadCloser == nil {
		return nil
	}
	return l.lines.Close()
}

// decode decodes the stream as soon as its kind is known.
func (s *Stream) decode(ctx context.Context, options format.Options) (format.Lines, error) {
	s.begin()
	<-s.done
	if s.err != nil {
		return format.Lines{}, s.err
	}
	var late []string
	for _, name := range s.kind.Bytes() {
		needed := options.Members == nil || slices.Contains(options.Members, name)
		if needed && (options.Bytes == nil || !slices.Contains(options.Bytes.Names, name)) {
			late = append(late, strconv.Quote(name))
		}
	}
	if len(late) > 0 {
		return format.Lines{}, fault.LateBytes.New("%s has columns of bytes (%s), which showed only after the job had begun", s.name, strings.Join(late, ", ")).Set(s.kind.format.Name)
	}
	lines, err := s.kind.stream(ctx, s.content, options)
	return lines, columnFault(s.name, err)
}

// firstBytes returns the beginning of a stream, by which its content is recognized, whether
// that is all of it, and a reader that returns it again. The beginning depends on the content
// alone, not on how it arrives. A stream may pause between records: firstBytes does not wait for
// the second one.
func firstBytes(r io.Reader) (head []byte, whole bool, again io.Reader) {
	all := make([]byte, 0, format.SniffBytes)
	var err error
	for head == nil && len(all) < cap(all) && err == nil {
		var n int
		n, err = r.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		head = beginning(all)
	}
	if head == nil {
		head, whole = all, errors.Is(err, io.EOF)
	}
	again = bytes.NewReader(all)
	if err != nil {
		return head, whole, io.MultiReader(again, failing{err})
	}
	return head, whole, io.MultiReader(again, r)
}

// beginning returns as much of the first bytes of a stream as it takes to recognize its
// content; nil if more are needed: of compressed content and of Arrow its first bytes, of JSON lines the
// beginning of the first, of an array of objects whether a second line follows it, of anything
// else some lines.
func beginning(head []byte) []byte {
	if compressionOf(head) != nil || arrow.Arrow.Match(head, false) {
		return head
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte(byteOrderMark)), " \t\r\n")
	if len(text) > 1 && text[0] == '{' && bytes.IndexByte([]byte(" \t\r\n\x00"), text[1]) < 0 {
		return head
	}
	for at, lines := 0, 0; ; {
		length := bytes.IndexByte(head[at:], '\n')
		if length < 0 {
			return nil
		}
		line := bytes.TrimSpace(head[at : at+length])
		at += length + 1
		if len(line) == 0 {
			continue
		}
		if lines++; lines == 1 && json.Valid(bytes.TrimPrefix(line, []byte(byteOrderMark))) || lines == tableLines {
			if lines == 1 && isObjects(line) && len(bytes.TrimSpace(head[at:])) == 0 {
				return nil // one array, unless another line follows
			}
			return head[:at]
		}
	}
}

const (
	// tableLines is how many lines of a stream it takes to recognize a table.
	tableLines    = 10
	byteOrderMark = "\ufeff"
)

// failing returns an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
