// Package stdfd tells whether standard input, output and error were closed when this
// process started.
//
// Go's runtime opens /dev/null in the place of a closed one before any Go code runs, so
// that later nothing fails: what is written there is lost, and what is read is empty.
// How the descriptor looks then does not tell: containers and other programs' ways to
// discard output open /dev/null in the same way. So a C constructor looks before the
// runtime starts. Without cgo nobody looks, and nothing counts as closed.
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

// Name is what people call a descriptor.
func Name(fd int) string {
	return [...]string{"standard input", "standard output", "standard error"}[fd]
}

// Closed reports whether a descriptor was closed when this process started.
func Closed(fd int) bool { return closed()&(1<<fd) != 0 }

// Of returns the descriptor that a path is a name of, if it is one of the three.
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
