package proc

import (
	"bytes"
	"strings"
	"sync"
)

const (
	// tailLines is enough for the trace of a panic in a gRPC handler, whose first line
	// says what happened.
	tailLines     = 40
	tailLineBytes = 1024
)

// Tail keeps the last lines written to it: a process's last output, for the error that
// reports its exit. The zero value is ready to use. It is safe for concurrent use.
type Tail struct {
	mu      sync.Mutex
	lines   []string
	partial []byte
	// returned: after a carriage return, the next bytes overwrite the line, as progress
	// bars do.
	returned bool
}

// Write accepts any bytes and cuts overlong lines.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			t.extend(p)
			return n, nil
		}
		t.extend(p[:i])
		t.push()
		p = p[i+1:]
	}
}

func (t *Tail) extend(p []byte) {
	for {
		i := bytes.IndexByte(p, '\r')
		if i < 0 {
			break
		}
		t.add(p[:i])
		t.returned = true
		p = p[i+1:]
	}
	t.add(p)
}

func (t *Tail) add(p []byte) {
	if len(p) == 0 {
		return
	}
	if t.returned {
		t.partial, t.returned = t.partial[:0], false
	}
	if room := tailLineBytes - len(t.partial); len(p) > room {
		p = p[:room]
	}
	t.partial = append(t.partial, p...)
}

func (t *Tail) push() {
	if line := strings.TrimRight(string(t.partial), " "); line != "" {
		if len(t.lines) == tailLines {
			t.lines = append(t.lines[:0], t.lines[1:]...)
		}
		t.lines = append(t.lines, strings.ToValidUTF8(line, "\uFFFD"))
	}
	t.partial, t.returned = t.partial[:0], false
}

// LastLine returns the last line of a text after a colon, for messages; nothing if there is none.
func LastLine(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}

// String returns the kept lines, including an unfinished one.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.partial) > 0 {
		lines = append(lines[:len(lines):len(lines)], strings.ToValidUTF8(string(t.partial), "\uFFFD"))
	}
	return strings.Join(lines, "\n")
}
