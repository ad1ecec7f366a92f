package amend

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// rewriter copies results in order while some of them are replaced: a file to a file, or a
// folder of parts to a folder with the same records in each part. A part without
// replacements is not copied but linked.
type rewriter struct {
	from, to string
	parts    []commit.ManifestPart // the old ones; a file is one part
	format   encode.Format
	folder   bool

	// Offsets and sizes are those before encoding.
	number   int       // of the current part
	start    int64     // its offset in the old results
	position int64     // offset in the old results up to which all is done
	old      *oldFile  // the current part, read up to position; nil while it is unchanged
	next     *nextFile // what replaces it; nil while it is unchanged
	before   int64     // bytes of the new parts before it
	passed   int64     // lines of the old parts before it, if they are counted
	counts   bool      // the lines of all parts are counted, so none is only linked
	written  []commit.ManifestPart
}

// openRewriter begins at the first record of the job's output.
func openRewriter(job Retried, to string) (*rewriter, error) {
	from := job.Output
	w := &rewriter{from: from, to: to, parts: job.Parts, format: job.Format, folder: job.Parts != nil, counts: len(job.Arrays) > 0}
	if w.folder {
		commit.RemoveParts(to) // left by a killed attempt
		if err := os.MkdirAll(to, 0o777); err != nil {
			return nil, fault.New(fault.Storage, "create output: %w", err)
		}
	} else {
		info, err := os.Stat(from)
		if err != nil {
			return nil, fault.New(fault.Usage, "open output: %w", err)
		}
		w.parts = []commit.ManifestPart{{Records: math.MaxInt64, Bytes: info.Size(), CRC32C: job.CRC}}
		if w.format.Encodes() {
			w.parts[0].Unencoded = unknownLength
		}
	}
	return w, w.begin()
}

// oldLines returns how many lines of the old results are done, if they are counted.
func (w *rewriter) oldLines() int64 {
	if w.old == nil {
		return w.passed
	}
	return w.passed + w.old.count
}

// path returns the path of the current part in a folder, or the file itself.
func (w *rewriter) path(dir string) string {
	if !w.folder {
		return dir
	}
	return filepath.Join(dir, w.parts[w.number].Name)
}

// unknownLength is that of an encoded file.
const unknownLength = math.MaxInt64

func (w *rewriter) begin() error {
	if w.folder && !w.counts {
		return nil
	}
	return w.touch() // a file is always rewritten
}

// reach advances to a failed record, in the part that contains it: a record without bytes
// may be at the border of two parts.
func (w *rewriter) reach(f record.Failure) error {
	for p := w.parts[w.number]; f.Record >= p.First && f.Record-p.First >= p.Records; p = w.parts[w.number] {
		if w.number == len(w.parts)-1 {
			return w.damaged("it has no record %d", f.Record)
		}
		if err := w.endPart(); err != nil {
			return err
		}
		w.number++
		if err := w.begin(); err != nil {
			return err
		}
	}
	return w.keep(f.At)
}

func (w *rewriter) damaged(format string, args ...any) error {
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", w.path(w.from), fmt.Errorf(format, args...))
}

// end returns the offset in the old results at which the current part ends.
func (w *rewriter) end() int64 { return w.start + lengthOf(w.parts[w.number], w.format) }

// at returns the size of the new results so far.
func (w *rewriter) at() int64 {
	if w.next == nil {
		return w.before + w.position - w.start
	}
	return w.before + w.next.length
}

// keep takes over the old results up to an offset.
func (w *rewriter) keep(to int64) error {
	if to < w.position || to > w.end() {
		return w.damaged("no record ends at byte %d", to)
	}
	if w.next != nil {
		if err := w.copy(to - w.position); err != nil {
			return err
		}
	}
	w.position = to
	return nil
}

// copy takes over the next bytes of the current part.
func (w *rewriter) copy(size int64) error {
	n, err := io.CopyN(w.next, w.old, size)
	return w.copied(n, size, err)
}

func (w *rewriter) copied(n, size int64, err error) error {
	switch {
	case w.old.err != nil:
		return w.damaged("%w", w.old.err)
	case errors.Is(err, io.EOF) || err == nil && n < size:
		return w.damaged("it is too short")
	}
	return storage(err)
}

// skip leaves out the next size bytes of the old results, after check has read them.
func (w *rewriter) skip(size int64, check func(io.Reader) error) error {
	if err := w.touch(); err != nil { // including everything before it
		return err
	}
	old := io.LimitReader(w.old, size)
	if err := check(old); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, old)
	w.position += size
	return w.copied(size, size, err)
}

// touch creates a new file for the current part, with what has been taken over so far.
func (w *rewriter) touch() (err error) {
	if w.next != nil {
		return nil
	}
	if w.old, err = openOld(w.path(w.from), w.format); err != nil {
		return err
	}
	if w.next, err = createNext(w.path(w.to), files.PublicMode, w.format); err != nil {
		return err
	}
	return w.copy(w.position - w.start)
}

// Write appends new results.
func (w *rewriter) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if err := w.touch(); err != nil {
		return 0, err
	}
	return w.next.Write(data)
}

// endPart takes over the rest of the current part and makes the new one durable.
func (w *rewriter) endPart() error {
	if err := w.keepRest(); err != nil {
		return err
	}
	p := w.parts[w.number]
	w.start = w.end()
	var err error
	if w.next == nil {
		err = commit.LinkFile(w.path(w.from), w.path(w.to))
	} else {
		err = cmp.Or(w.next.finish(), w.next.file.Close())
		p.Lines, p.Bytes, p.CRC32C = w.next.lines, w.next.sum.Bytes, chunk.CRC(w.next.sum.CRC)
		if w.format.Encodes() {
			p.Unencoded = w.next.length
		}
		w.passed += w.old.count
		w.old.close()
		w.old, w.next = nil, nil
	}
	w.before += lengthOf(p, w.format)
	w.written = append(w.written, p)
	return storage(err)
}

// keepRest takes over the rest of the current part and checks that all of it is what the job
// wrote.
func (w *rewriter) keepRest() error {
	p := w.parts[w.number]
	if lengthOf(p, w.format) != unknownLength {
		if err := w.keep(w.end()); err != nil {
			return err
		}
	} else if n, err := io.Copy(w.next, w.old); err != nil || w.old.err != nil {
		return w.copied(n, n, err)
	}
	if w.next == nil {
		return nil
	}
	if err := w.old.drain(); err != nil {
		return w.damaged("%w", err)
	}
	if sum := w.old.sum; chunk.CRC(sum.CRC) != p.CRC32C {
		return w.damaged("it has checksum %s instead of %s", chunk.CRC(sum.CRC), p.CRC32C)
	}
	return nil
}

// finish takes over everything that remains.
func (w *rewriter) finish() error {
	for {
		if err := w.endPart(); err != nil {
			return err
		}
		if w.number++; w.number == len(w.parts) {
			break
		}
		if err := w.begin(); err != nil {
			return err
		}
	}
	if w.folder {
		return storage(files.SyncDir(w.to))
	}
	return nil
}

func (w *rewriter) close() {
	w.old.close()
	if w.next != nil {
		w.next.file.Close()
	}
}

// nextFile is a new file that counts and sums what is written to it.
type nextFile struct {
	file    *os.File
	out     *bufio.Writer
	encoder *encode.Writer // nil for plain lines
	sum     chunk.FileSum  // of the file
	length  int64          // before encoding
	lines   int64
}

// createNext creates it. It removes a file left by a killed attempt instead of truncating
// it, because it may be a link to another file.
func createNext(path string, mode os.FileMode, format encode.Format) (*nextFile, error) {
	_ = os.Remove(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fault.New(fault.Storage, "create output: %w", err)
	}
	n := &nextFile{file: file, out: bufio.NewWriterSize(file, 1<<20)}
	if format.Encodes() {
		n.encoder = encode.NewWriter(io.MultiWriter(n.out, &n.sum), format.Codec)
	}
	return n, nil
}

func (n *nextFile) Write(p []byte) (int, error) {
	n.lines += int64(bytes.Count(p, []byte("\n")))
	n.length += int64(len(p))
	if n.encoder != nil {
		return n.encoder.Write(p)
	}
	_, _ = n.sum.Write(p)
	return n.out.Write(p)
}

func (n *nextFile) finish() error {
	if n.encoder != nil {
		if err := n.encoder.Close(); err != nil {
			return err
		}
	}
	if err := n.out.Flush(); err != nil {
		return err
	}
	return n.file.Sync()
}

// storage classifies a write error.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "rewrite output: %w", err)
}
