package proc

import (
	"bytes"
	"strings"
	"sync"
)

const (
	tailLines     = 20
	tailLineBytes = 1024
)

// Tail keeps the last lines written to it: the last words of a process, for the
// error that reports its death. The zero value is ready. Safe for concurrent use.
type Tail struct {
	mu      sync.Mutex
	lines   []string
	partial []byte
}

// Write takes any bytes; lines longer than a screen's worth are cut.
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
	if room := tailLineBytes - len(t.partial); len(p) > room {
		p = p[:room]
	}
	t.partial = append(t.partial, p...)
}

func (t *Tail) push() {
	if line := strings.TrimRight(string(t.partial), "\r "); line != "" {
		if len(t.lines) == tailLines {
			t.lines = append(t.lines[:0], t.lines[1:]...)
		}
		t.lines = append(t.lines, strings.ToValidUTF8(line, "\uFFFD"))
	}
	t.partial = t.partial[:0]
}

// String returns the lines kept, the unfinished one included.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.partial) > 0 {
		lines = append(lines[:len(lines):len(lines)], strings.ToValidUTF8(string(t.partial), "\uFFFD"))
	}
	return strings.Join(lines, "\n")
}
