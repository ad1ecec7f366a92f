// Package progress displays a job: bars on a terminal, plain lines elsewhere, JSON
// events for programs, and the final report. It is the only package that draws.
//
//	view ── View ───────────► Display ──► bars │ lines │ nothing
//	orchestrator ── Event ──────┴───────► notices, JSON events
package progress

import (
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/mattn/go-isatty"

	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// Display shows a job's events. Calls of Event must not overlap; call Close after the
// last one.
type Display interface {
	Event(orchestrator.Event)
	// Write prints whole lines of text above the bars.
	io.Writer
	// Close restores the terminal. It may be called more than once.
	Close()
}

// Options configure what to show and where.
type Options struct {
	// View returns the job's current state, with all events that were passed to Event.
	View func() view.View
	// Stderr receives the display. Bars are drawn if it is a terminal.
	Stderr *os.File
	// Records are the files that the job writes records to, - for standard output. If
	// one of them is a terminal, no bars are drawn, since they would erase records.
	Records []string
	// Quiet shows only alarms.
	Quiet bool
	// Events receives JSON events, one per line; nil for none. If it is Stderr, nothing
	// else is shown.
	Events io.Writer
}

// New returns the display that fits the options.
func New(options Options) Display {
	var d Display
	switch {
	case options.Events != nil && options.Events == io.Writer(options.Stderr):
		d = &quiet{out: io.Discard} // a program parses it as JSON
	case options.Quiet:
		d = &quiet{out: options.Stderr}
	case IsTerminal(options.Stderr) && !slices.ContainsFunc(options.Records, isTerminalPath):
		d = newBars(options.Stderr, options.View)
	default:
		d = newLines(options.Stderr, lineInterval, options.View)
	}
	if options.Events != nil {
		d = &withEvents{d, options.Events}
	}
	return d
}

// IsTerminal reports whether f is a terminal that bars can be drawn on.
func IsTerminal(f *os.File) bool {
	return os.Getenv("TERM") != "dumb" && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// isTerminalPath is IsTerminal for a path.
func isTerminalPath(path string) bool {
	if path == "-" {
		return IsTerminal(os.Stdout)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false // do not open it: a pipe may have a reader
	}
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return IsTerminal(f)
}

// printLine prints a line, unless it is empty.
func printLine(out io.Writer, text string) {
	if text != "" {
		_, _ = io.WriteString(out, text+"\n")
	}
}

// quiet shows only alarms.
type quiet struct{ out io.Writer }

func (q *quiet) Event(event orchestrator.Event) { printLine(q.out, alarm(event)) }

func (q *quiet) Write(p []byte) (int, error) { return q.out.Write(p) }

func (q *quiet) Close() {}

// withEvents also writes events as JSON.
type withEvents struct {
	Display
	out io.Writer
}

func (w *withEvents) Event(event orchestrator.Event) {
	writeEvent(w.out, event)
	w.Display.Event(event)
}
