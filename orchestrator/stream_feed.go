package orchestrator

import (
	"bytes"
	"io"
	"iter"
	"sync/atomic"
)

// feedRecords is how many records wait in memory.
const feedRecords = 32

// feed passes records from a sequence to the reader of a stream, as lines. The sequence
// waits while the feed is full, the reader while it is empty.
type feed struct {
	lines  chan []byte
	rest   []byte                // of the line that is being read
	closed chan struct{}         // the reader needs no more
	err    atomic.Pointer[error] // of the sequence
}

// fill reads the sequence to its end or its first error.
func (f *feed) fill(records iter.Seq2[Record, error]) {
	defer close(f.lines)
	for record, err := range records {
		if err != nil {
			f.err.Store(&err)
			return
		}
		select {
		case f.lines <- lineOf(record):
		case <-f.closed:
			return
		}
	}
}

// failure returns the error of the sequence.
func (f *feed) failure() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// notBlank stands for a blank record, which would be skipped like a blank line. It is not
// JSON either.
const notBlank = "\f"

// lineOf returns a record as exactly one line. Line breaks between the parts of a JSON
// value mean the same as spaces; within strings JSON has none.
func lineOf(record Record) []byte {
	line := bytes.Clone(bytes.Trim(record, " \t\r\n"))
	if len(line) == 0 {
		line = []byte(notBlank)
	}
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	return append(line, '\n')
}

// Read returns lines as soon as there are any.
func (f *feed) Read(p []byte) (n int, err error) {
	for n < len(p) && (n == 0 || len(f.rest)+len(f.lines) > 0) {
		if len(f.rest) == 0 {
			select {
			case line, more := <-f.lines:
				if f.rest = line; !more {
					return n, io.EOF
				}
			case <-f.closed:
				return n, io.EOF
			}
		}
		copied := copy(p[n:], f.rest)
		n, f.rest = n+copied, f.rest[copied:]
	}
	return n, nil
}
