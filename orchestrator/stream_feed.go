package orchestrator

import (
	"bytes"
	"io"
	"iter"
	"sync"
)

// feedBytes is how much of the records waits in memory.
const feedBytes = 256 << 10

// feed passes records from a sequence to the reader of a stream, as lines. The sequence
// waits while the feed is full, the reader while it is empty.
type feed struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte
	at      int   // data[:at] has been read
	done    bool  // the sequence has ended
	closed  bool  // the reader needs no more
	err     error // of the sequence
}

func newFeed() *feed {
	f := &feed{}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// fill reads the sequence to its end or its first error.
func (f *feed) fill(records iter.Seq2[Record, error]) {
	var failed error
	for record, err := range records {
		if failed = err; err != nil || !f.add(record) {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.err = true, failed
	f.changed.Broadcast()
}

// add adds a record as a line. It returns false if no more are needed.
func (f *feed) add(record Record) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.data)-f.at >= feedBytes && !f.closed {
		f.changed.Wait()
	}
	if f.closed {
		return false
	}
	if f.at == len(f.data) {
		f.data, f.at = f.data[:0], 0
	}
	f.data = appendLine(f.data, record)
	f.changed.Broadcast()
	return true
}

// notBlank stands for a blank record, which would be skipped like a blank line. It is not
// JSON either.
const notBlank = "\f"

// appendLine appends a record as exactly one line. Line breaks between the parts of a JSON
// value mean the same as spaces; within strings JSON has none.
func appendLine(to []byte, record Record) []byte {
	record = bytes.Trim(record, " \t\r\n")
	if len(record) == 0 {
		record = Record(notBlank)
	}
	from := len(to)
	to = append(append(to, record...), '\n')
	for i, c := range to[from : len(to)-1] {
		if c == '\n' || c == '\r' {
			to[from+i] = ' '
		}
	}
	return to
}

// Read returns lines as soon as there are any.
func (f *feed) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.at == len(f.data) && !f.done && !f.closed {
		f.changed.Wait()
	}
	if f.closed || f.at == len(f.data) {
		return 0, io.EOF
	}
	n := copy(p, f.data[f.at:])
	f.at += n
	f.changed.Broadcast()
	return n, nil
}

// close ends the feed on both sides.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.changed.Broadcast()
}

// failure returns the error of the sequence.
func (f *feed) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
