// Package stdfd reports whether standard input, output or error was closed when this
// process started.
//
// The Go runtime replaces closed ones with /dev/null before any Go code runs, so that later
// writes are lost and reads are empty without an error. Afterwards the descriptor looks
// like a deliberate redirection to /dev/null. So a C constructor checks before the runtime
// starts. Without cgo there is no check, and nothing counts as closed.
package stdfd

import (
	"path/filepath"
	"strconv"
)

// The descriptors.
const (
	Stdin  = 0
	Stdout = 1
	Stderr = 2
)

// Name returns the common name of a descriptor.
func Name(fd int) string {
	return [...]string{"standard input", "standard output", "standard error"}[fd]
}

// Closed reports whether a descriptor was closed when this process started.
func Closed(fd int) bool { return closed()&(1<<fd) != 0 }

// Of returns the standard descriptor that a path refers to, if any.
func Of(path string) (fd int, ok bool) {
	path = filepath.Clean(path)
	switch path {
	case "/dev/stdin":
		return Stdin, true
	case "/dev/stdout":
		return Stdout, true
	case "/dev/stderr":
		return Stderr, true
	}
	switch filepath.Dir(path) {
	case "/dev/fd", "/proc/self/fd":
		fd, err := strconv.Atoi(filepath.Base(path))
		return fd, err == nil && fd >= Stdin && fd <= Stderr
	}
	return 0, false
}
