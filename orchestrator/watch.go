package orchestrator

import (
	"bytes"
	"errors"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// inputWatch checks that the input is still the file that the job was planned for:
// workers open it by name, chunk by chunk, and another process may replace the file or
// write to it.
//
// It is consulted before a segment goes into the journal, so everything in the journal
// comes from one input. A stream has no watch: nil is always unchanged.
type inputWatch struct {
	resumable bool // once it is restored
	path      string
	file      *os.File // held open, so that its inode number is not reused
	was       os.FileInfo
	tail      []byte            // the last bytes
	sums      func() input.Sums // of what was scanned so far; nil if there are none
	whole     bool              // the sums cover everything that the job reads
	grown     bool
	reported  map[string]bool
}

// tailBytes is how much of the old end must be unchanged for a longer file without
// checksums to count as appended to: a rewritten file would hardly have the same bytes
// there.
const tailBytes = 4 << 10

func watchInput(c Config) (*inputWatch, error) {
	path := c.Input.Path
	if err := input.CheckRegular(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Usage, "open input: %w", err)
	}
	w := &inputWatch{path: path, resumable: resumable(c), file: file, reported: make(map[string]bool)}
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

// check returns a fault if the input has changed since the job was planned. Before a
// segment is committed, from..to are the bytes it was read from; at the end of the job
// they are the whole file. A file that was only touched or appended to counts as
// unchanged: the planned part is intact and the output is right. notice then gets a
// line for the user, once. A link to the file, another mode or another name for a while
// change its ctime as an edit with a restored time does: the content is compared, without a
// notice.
func (w *inputWatch) check(from, to int64, notice func(text string)) error {
	if w == nil {
		return nil
	}
	now, err := os.Stat(w.path)
	if err != nil {
		return fault.New(fault.Storage, "check input: %w", err)
	}
	if sameFile(now, w.was) {
		return nil
	}
	same := os.SameFile(now, w.was)
	switch {
	case now.Size() == w.was.Size():
		err = w.compareAll(same)
	case same && now.Size() > w.was.Size():
		w.grown = true
		err = w.compare(from, min(to, w.was.Size()))
	default:
		err = input.ErrOtherBytes
	}
	switch {
	case errors.Is(err, input.ErrOtherBytes):
		return w.changed(now)
	case err != nil:
		return fault.New(fault.Storage, "compare input: %w", err)
	case now.Size() > w.was.Size():
		w.report(notice, "the input "+w.path+" was appended to while the job was reading it; the appended records are not in the output")
		return nil
	}
	if !same || !now.ModTime().Equal(w.was.ModTime()) {
		w.report(notice, "the input "+w.path+" was touched while the job was reading it; its content is unchanged")
	}
	return w.adopt(now)
}

// compareAll compares the whole file, or what was scanned so far: the rest of the same file is
// scanned as it is now.
func (w *inputWatch) compareAll(same bool) error {
	if same && w.sums != nil && !w.whole {
		return w.sums().CheckAll(w.path)
	}
	return w.compare(0, w.was.Size())
}

// compare reads the bytes from..to of the file and returns ErrOtherBytes if they are
// not those that were scanned. Without checksums, a longer file is compared by its
// former end; any other file cannot be compared.
func (w *inputWatch) compare(from, to int64) error {
	if w.sums != nil {
		sums := w.sums()
		if from = max(from, sums.From); w.whole || sums.Cover(from, to) {
			return sums.Check(w.path, from, to)
		}
	}
	if !w.grown {
		return input.ErrOtherBytes
	}
	tail, err := w.readTail()
	if err == nil && !bytes.Equal(tail, w.tail) {
		err = input.ErrOtherBytes
	}
	return err
}

// adopt accepts the file, with new times, as the one that the job was planned for.
func (w *inputWatch) adopt(now os.FileInfo) error {
	file, err := os.Open(w.path)
	if err != nil {
		return fault.New(fault.Storage, "open input: %w", err)
	}
	w.file.Close()
	w.file, w.was = file, now
	return nil
}

func (w *inputWatch) report(notice func(string), text string) {
	if !w.reported[text] {
		w.reported[text] = true
		notice(text)
	}
}

func (w *inputWatch) changed(now os.FileInfo) error {
	describe := func(info os.FileInfo) string { return info.ModTime().UTC().Format(time.RFC3339Nano) }
	e := fault.New(fault.Conflict, "the input %s changed while the job was reading it: it had %d bytes (modified %s), now %d (modified %s)",
		w.path, w.was.Size(), describe(w.was), now.Size(), describe(now))
	if !w.resumable {
		return fault.New(e.Kind, "%w; run the job again", e)
	}
	return e.WithCode(fault.InputChanged, "")
}

func (w *inputWatch) close() {
	if w != nil {
		w.file.Close()
	}
}
