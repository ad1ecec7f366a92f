package orchestrator

import (
	"bytes"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// inputWatch tells whether the input is still the file that the job was planned
// for: workers open it by its name, chunk by chunk, and somebody may give that
// name to another file, or write to this one.
//
// It is asked before a segment goes into the journal, so all that is in there is
// of one input. A stream has none: nil is always unchanged.
type inputWatch struct {
	path string
	file *os.File // held open: nobody else gets its inode number
	was  os.FileInfo
	tail []byte // the last bytes
	told bool   // that it grows
}

// tailBytes is how much of the end must be the same for a longer file to be one
// that was appended to: written anew, it would hardly have the same bytes there.
const tailBytes = 4 << 10

func watchInput(path string) (*inputWatch, error) {
	if err := chunk.CheckRegular(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Usage, "open input: %w", err)
	}
	w := &inputWatch{path: path, file: file}
	if w.was, err = file.Stat(); err == nil {
		w.tail, err = w.readTail()
	}
	if err != nil {
		file.Close()
		return nil, fault.New(fault.Usage, "read input %s: %w", path, err)
	}
	return w, nil
}

func (w *inputWatch) readTail() ([]byte, error) {
	tail := make([]byte, min(w.was.Size(), tailBytes))
	_, err := w.file.ReadAt(tail, w.was.Size()-int64(len(tail)))
	return tail, err
}

// check is the fault of an input that was changed. One that was only appended to
// is not: what was planned is still there, and the output is right; tell has a
// line for the user then, once.
func (w *inputWatch) check(tell func(text string)) error {
	if w == nil {
		return nil
	}
	now, err := os.Stat(w.path)
	if err != nil {
		return fault.New(fault.Storage, "look at input: %w", err)
	}
	same := os.SameFile(now, w.was)
	if same && now.Size() == w.was.Size() && now.ModTime().Equal(w.was.ModTime()) {
		return nil
	}
	if same && now.Size() > w.was.Size() {
		if tail, err := w.readTail(); err == nil && bytes.Equal(tail, w.tail) {
			if !w.told {
				w.told = true
				tell("the input " + w.path + " was appended to while the job read it; what came after the start is not in the output")
			}
			return nil
		}
	}
	describe := func(info os.FileInfo) string { return info.ModTime().UTC().Format(time.RFC3339Nano) }
	return fault.New(fault.Conflict, "the input %s was changed while the job read it: it had %d bytes of %s, it has %d of %s; "+
		"--fresh starts over; the same command goes on if the input is put back as it was, with its time",
		w.path, w.was.Size(), describe(w.was), now.Size(), describe(now))
}

func (w *inputWatch) close() {
	if w != nil {
		w.file.Close()
	}
}
