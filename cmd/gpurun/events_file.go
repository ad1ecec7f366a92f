package main

import (
	"cmp"
	"errors"
	"os"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// eventsFile writes events to a file. A write error does not stop the job: it is reported
// when the job ends, and no further events are written, so that a reader sees a truncated
// file instead of a gap.
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

// close may be called more than once. A closed pipe is not an error: its reader wants no
// more events.
func (e *eventsFile) close() error {
	if e.file != nil {
		e.lost = cmp.Or(e.lost, e.file.Close())
		e.file = nil
	}
	if e.lost == nil || errors.Is(e.lost, syscall.EPIPE) {
		return nil
	}
	return fault.SideFile.New("--json-events: %w", e.lost)
}
