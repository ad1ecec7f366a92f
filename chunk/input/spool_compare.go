package input

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
)

// A section that is read again is split where it was split before, and what has been
// computed is compared with the log's checksums.

// expected returns what the log says about the current chunk.
func (w *spoolWriter) expected() (loggedChunk, bool) {
	if w.index >= len(w.before.chunks) {
		return loggedChunk{}, false
	}
	return w.before.chunks[w.index], true
}

// compare checks the bytes of the logged chunk when the last of them is about to be
// written.
func (w *spoolWriter) compare(data []byte) {
	logged, ok := w.expected()
	left := logged.Bytes - w.current.Length
	if !ok || left <= 0 || left > int64(len(data)) {
		return
	}
	sum := w.sum
	_, _ = sum.Write(data[:left])
	w.prefix = sum.CRC == logged.CRC
}

// mustCut reports whether the chunk ends after the line that was just written: where the
// log says, or else because it is full.
//
// If an earlier run was killed together with the writer of its stream, the stream seemed to
// end. Its last chunk then grows, unless it is done.
func (w *spoolWriter) mustCut() (bool, error) {
	logged, ok := w.expected()
	length := w.current.Length
	if !ok || w.current.Records == 0 { // blank lines only are no chunk
		return w.full(length), nil
	}
	done := w.options.Done(logged.First, logged.Records)
	switch {
	case length < logged.Bytes:
		return false, nil
	case !w.prefix:
		return false, w.differs("its content is different")
	case length == logged.Bytes && (!logged.Last || done):
		return true, nil
	case logged.Last && !done && w.index == len(w.before.chunks)-1:
		return w.full(length), nil
	}
	return false, w.differs("it continues where it ended before")
}

// compareAll compares a whole chunk with the log.
func (w *spoolWriter) compareAll(now *loggedChunk) error {
	was, ok := w.expected()
	if !ok {
		return nil
	}
	if now.same(was) {
		now.Last, now.Open = was.Last, was.Open // what it says about the end is older, but may be all there is
		return nil
	}
	if w.prefix && was.Last && now.At == was.At && !w.options.Done(was.First, was.Records) {
		return nil // it has grown
	}
	if now.Bytes < was.Bytes {
		return w.differs("it has fewer records")
	}
	return w.differs("its content is different")
}

// differs is the fault of a section that is not what an earlier run has read.
func (w *spoolWriter) differs(how string) error {
	logged, _ := w.expected()
	return w.sectionReader.differs(w.name, logged, how)
}

func (r *sectionReader) differs(name string, logged loggedChunk, how string) error {
	e := fault.New(fault.Conflict, "the input has changed since the job began: %s is not what an earlier run read at record %d (line %d): %s",
		cmp.Or(name, "the stream"), logged.First, logged.Line, how).WithCode(fault.Changed, "")
	if r.wasDamaged() {
		return e.By(&Repaired{First: logged.First})
	}
	return e
}

// Repaired is the error of a file that is not what an earlier run has read. That run found it
// damaged, and damage may show only behind what it has altered. The results of all records from
// First on must be computed again.
type Repaired struct{ First int64 }

func (r *Repaired) Error() string { return "a damaged file was replaced" }

// wasDamaged reports whether an earlier run found damage in the section, and what it has read can
// be read again.
func (r *sectionReader) wasDamaged() bool {
	return !r.once && slices.ContainsFunc(r.Section.files(), func(f SectionFile) bool { return r.options.Log.Bad(f.Number) })
}
