package amend

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
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
	folder   bool
	summed   bool // the old checksums are known

	number   int           // of the current part
	old      *os.File      // the current part
	start    int64         // its offset in the old results
	position int64         // offset in the old results up to which all is done
	read     chunk.FileSum // of what was read of the current part
	next     *nextFile     // nil while the part is unchanged
	before   int64         // bytes of the new parts before it
	written  []commit.ManifestPart
}

// openRewriter begins at the first record of the job's output.
func openRewriter(job Retried, to string) (*rewriter, error) {
	from := job.Output
	w := &rewriter{from: from, to: to, parts: job.Parts, folder: job.Parts != nil, summed: true}
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
		w.parts = []commit.ManifestPart{{Records: math.MaxInt64, Bytes: info.Size()}}
		if w.summed = job.CRC != nil; w.summed {
			w.parts[0].CRC32C = *job.CRC
		}
	}
	return w, w.begin()
}

// path returns the path of the current part in a folder, or the file itself.
func (w *rewriter) path(dir string) string {
	if !w.folder {
		return dir
	}
	return filepath.Join(dir, w.parts[w.number].Name)
}

func (w *rewriter) begin() (err error) {
	if w.old, err = os.Open(w.path(w.from)); err != nil {
		return fault.New(fault.Usage, "open output: %w", err)
	}
	w.read = chunk.FileSum{}
	if w.folder {
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
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: %s", w.path(w.from), fmt.Sprintf(format, args...))
}

// end returns the offset in the old results at which the current part ends.
func (w *rewriter) end() int64 { return w.start + w.parts[w.number].Bytes }

// at returns the size of the new results so far.
func (w *rewriter) at() int64 {
	if w.next == nil {
		return w.before + w.position - w.start
	}
	return w.before + w.next.sum.Bytes
}

// keep takes over the old results up to an offset.
func (w *rewriter) keep(to int64) error {
	if to < w.position || to > w.end() {
		return w.damaged("no record ends at byte %d", to)
	}
	if w.next != nil {
		if err := w.copy(w.position, to); err != nil {
			return err
		}
	}
	w.position = to
	return nil
}

func (w *rewriter) copy(from, to int64) error {
	n, err := io.Copy(io.MultiWriter(w.next, &w.read), io.NewSectionReader(w.old, from-w.start, to-from))
	if err == nil && n < to-from {
		return w.damaged("it is too short")
	}
	return storage(err)
}

// section reads the next bytes of the old results.
func (w *rewriter) section(size int64) io.Reader {
	return io.NewSectionReader(w.old, w.position-w.start, size)
}

// skip leaves out the next size bytes of the old results.
func (w *rewriter) skip(size int64) error {
	if err := w.touch(); err != nil { // including everything before it
		return err
	}
	_, err := io.Copy(&w.read, w.section(size))
	w.position += size
	return storage(err)
}

// touch creates a new file for the current part, with what has been taken over so far.
func (w *rewriter) touch() (err error) {
	if w.next != nil {
		return nil
	}
	if w.next, err = createNext(w.path(w.to), files.PublicMode); err != nil {
		return err
	}
	return w.copy(w.start, w.position)
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
	if err := w.keep(w.end()); err != nil {
		return err
	}
	p := w.parts[w.number]
	if w.next != nil && w.summed && chunk.CRC(w.read.CRC) != p.CRC32C {
		return w.damaged("it has checksum %s instead of %s", chunk.CRC(w.read.CRC), p.CRC32C)
	}
	var err error
	if w.next == nil {
		err = commit.LinkFile(w.path(w.from), w.path(w.to))
	} else {
		p.Lines, p.Bytes, p.CRC32C = w.next.lines, w.next.sum.Bytes, chunk.CRC(w.next.sum.CRC)
		err = cmp.Or(w.next.finish(), w.next.file.Close())
		w.next = nil
	}
	w.old.Close()
	w.start = w.end()
	w.before += p.Bytes
	w.written = append(w.written, p)
	return storage(err)
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
	if w.old != nil {
		w.old.Close()
	}
	if w.next != nil {
		w.next.file.Close()
	}
}

// nextFile is a new file that counts and sums what is written to it.
type nextFile struct {
	file  *os.File
	out   *bufio.Writer
	sum   chunk.FileSum
	lines int64
}

// createNext creates it. It removes a file left by a killed attempt instead of truncating
// it, because it may be a link to another file.
func createNext(path string, mode os.FileMode) (*nextFile, error) {
	_ = os.Remove(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fault.New(fault.Storage, "create output: %w", err)
	}
	return &nextFile{file: file, out: bufio.NewWriterSize(file, 1<<20)}, nil
}

func (n *nextFile) Write(p []byte) (int, error) {
	_, _ = n.sum.Write(p)
	n.lines += int64(bytes.Count(p, []byte("\n")))
	return n.out.Write(p)
}

func (n *nextFile) finish() error {
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
