package main

import (
	"cmp"
	"errors"
	"os"
	"syscall"
)

// eventsFile takes events for a program. They hold no job up: what kept them from the
// file is told when the job is done, and from there on none are written, so that the
// program finds an end instead of a gap.
type eventsFile struct {
	file *os.File
	lost error
}

func (e *eventsFile) Write(p []byte) (int, error) {
	if e.lost == nil {
		_, e.lost = e.file.Write(p)
	}
	return len(p), e.lost
}

// close may be called more than once. A reader that has left a pipe wanted no more.
func (e *eventsFile) close() error {
	if e.file != nil {
		e.lost = cmp.Or(e.lost, e.file.Close())
		e.file = nil
	}
	if e.lost == nil || errors.Is(e.lost, syscall.EPIPE) {
		return nil
	}
	return usagef("--json-events: %w", e.lost)
}
