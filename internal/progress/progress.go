// Package progress shows a job to a person or a program: bars on a terminal,
// plain lines elsewhere, JSON events for programs, and the report at the end. It
// is the only package that draws.
//
//	orchestrator ── Event ──► Display ──► bars │ lines │ nothing
//	                              └─────► JSON events
package progress

import (
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/mattn/go-isatty"

	"github.com/gpurun/gpurun/orchestrator"
)

// Display takes a job's events. Event is called one at a time; Close after the
// last.
type Display interface {
	Event(orchestrator.Event)
	// Write takes whole lines of text: they stand above the bars, never torn.
	io.Writer
	// Close leaves the terminal in order. It may be called more than once.
	Close()
}

// Options say what to show, and where.
type Options struct {
	// Stderr is where people look. Bars are drawn if it is a terminal.
	Stderr *os.File
	// Records are the files that the job writes records to, - for standard output.
	// Where a person sees those come there are no bars, which would erase them.
	Records []string
	// Quiet shows nothing but notices.
	Quiet bool
	// Events takes JSON events, one a line; nil for none. If it is Stderr, nothing
	// else is shown.
	Events io.Writer
}

// New returns the display that fits.
func New(options Options) Display {
	var d Display
	switch {
	case options.Events != nil && options.Events == io.Writer(options.Stderr):
		d = &quiet{out: io.Discard} // a program reads there: a line of text would be no JSON
	case options.Quiet:
		d = &quiet{out: options.Stderr}
	case IsTerminal(options.Stderr) && !slices.ContainsFunc(options.Records, isTerminalPath):
		d = newBars(options.Stderr)
	default:
		d = newLines(options.Stderr, lineInterval)
	}
	if options.Events != nil {
		d = &withEvents{Display: d, events: newEvents(options.Events)}
	}
	return d
}

// IsTerminal reports whether a person sees what is written to f, and bars can
// be drawn there.
func IsTerminal(f *os.File) bool {
	return os.Getenv("TERM") != "dumb" && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// isTerminalPath is IsTerminal of a file's name.
func isTerminalPath(path string) bool {
	if path == "-" {
		return IsTerminal(os.Stdout)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false // nor may it be opened: somebody may read a pipe
	}
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return IsTerminal(f)
}

// quiet shows only what a person must know.
type quiet struct{ out io.Writer }

func (q *quiet) Event(event orchestrator.Event) {
	if text := alarm(event); text != "" {
		_, _ = io.WriteString(q.out, text+"\n")
	}
}

func (q *quiet) Write(p []byte) (int, error) { return q.out.Write(p) }

func (q *quiet) Close() {}

// withEvents sends events to a program too.
type withEvents struct {
	Display
	events *events
}

func (w *withEvents) Event(event orchestrator.Event) {
	w.events.write(event)
	w.Display.Event(event)
}
