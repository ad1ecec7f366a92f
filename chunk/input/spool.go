package input

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// spoolWriter copies the lines of a section to one spool file after another.
type spoolWriter struct {
	in  *section
	ctx context.Context

	name  string               // of the file
	rows  func() bool          // its lines are rows
	blobs func() []format.Blob // of its next line; nil if its lines have none
	line  int64                // number of the next line in its file

	begun   bool          // the beginning of the line is already written,
	lineSum chunk.FileSum // behind what has this checksum
	blank   bool          // the line is white space so far
	skipped bool          // the line is before Limits.Offset

	seen  int64         // records, including skipped ones
	index int           // of the chunk
	chunk *spooledChunk // nil before its first line
	found sectionEnd
}

// spooledChunk is a chunk whose lines are being copied.
type spooledChunk struct {
	chunk.Chunk
	to WrittenFile // not created for a chunk that is only compared

	blobs  *BlobWriter // nil if records have none
	lines  int64
	ended  bool         // the last line has a line feed
	was    *loggedChunk // what the log says about the chunk; nil for nothing
	done   bool         // an earlier run has computed that
	prefix bool         // the chunk begins with the bytes of the logged one
}

// readLines copies the section's lines to spool files.
func (r *section) readLines(ctx context.Context) (sectionEnd, error) {
	w := &spoolWriter{in: r, ctx: ctx}
	defer w.discard()
	for _, file := range r.Files {
		if err := w.copyFile(file); err != nil {
			return w.found, err
		}
		if w.full() {
			break
		}
	}
	return w.found, w.finish()
}

// copyFile copies the lines of a file, or those before its damage.
func (w *spoolWriter) copyFile(file SectionFile) error {
	w.name = file.Name
	lines, err := file.Open(w.ctx)
	w.rows, w.blobs = lines.CountsRows, lines.Blobs
	if err != nil {
		return w.damaged(file, err, 1)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	blocks := readBlocks(ctx, lines)
	w.beginFile(lines)
	err = w.copy(blocks)
	cancel()
	closeLines(lines, blocks, w.in.Once)
	var damage *readError
	if !errors.As(err, &damage) || w.ctx.Err() != nil {
		return err
	}
	if err := w.dropLine(); err != nil {
		return err
	}
	return w.damaged(file, damage.error, w.line)
}

// closeLines closes lines that are no longer read. A Read of a stream may never return; it
// is then abandoned.
func closeLines(lines format.Lines, in blocks, once bool) {
	wait := func() {
		for range in.filled { // until the reading goroutine exits
		}
		in.recycle()
		_ = lines.Close()
	}
	if once {
		go wait()
		return
	}
	wait()
}

// readError is an error of the section's reader, in contrast to one of the spool.
type readError struct{ error }

// damaged ends a file at its damage, if the caller wants that, or returns a fault. The
// records before the damage are passed on.
func (w *spoolWriter) damaged(file SectionFile, err error, line int64) error {
	if e := fault.As(err); e != nil && (e.Kind == fault.Conflict || e.Kind == fault.Canceled || e.Kind == fault.Usage) {
		return err // it is not the file's fault
	}
	if wrong := new(format.ColumnError); errors.As(err, &wrong) {
		return fault.InputUnreadable.Of(fault.Usage, "input %s: %w", file.Name, err).Set("columns")
	}
	o := &w.in.source.options
	if o.SkipBad && !w.in.Once {
		w.found.Bad = err.Error()
		if err := w.logDamage(file.Number, false); err != nil {
			return err
		}
		if o.Skipped != nil {
			o.Skipped(Damage{Name: file.Name, Line: line, Rows: w.rows(), Err: err})
		}
		return nil
	}
	if err := w.cut(true); err != nil {
		return err
	}
	if err := w.logDamage(file.Number, true); err != nil {
		return err
	}
	switch {
	case fault.As(err) != nil:
		return err
	case file.Name == "":
		return fault.InputUnreadable.New("read input: %w", err)
	}
	return fault.BadInput.New("read input %s from %s %d on: %w", file.Name, chunk.Unit(w.rows()), line, err)
}

// logDamage notes that a file may be replaced by an undamaged one before the job resumes.
func (w *spoolWriter) logDamage(file int, stops bool) error {
	if w.in.Once {
		return nil
	}
	w.in.source.mu.Lock()
	defer w.in.source.mu.Unlock()
	return w.in.source.options.Log.add(loggedChunk{Section: w.in.number, Damaged: &file, Stops: stops})
}

func (w *spoolWriter) copy(in blocks) error {
	var flush <-chan time.Time
	timed := 0 // the chunk that flush belongs to
	for {
		select {
		case block, ok := <-in.filled:
			if !ok {
				return w.ctx.Err()
			}
			if err := w.copyLines(block.data); err != nil {
				return err
			}
			if errors.Is(block.err, io.EOF) {
				return w.endFile()
			}
			if block.err != nil {
				return &readError{block.err}
			}
			if w.full() {
				return nil
			}
			in.empty <- block.data
			switch wait := w.in.source.options.Flush; {
			case w.chunk == nil || w.chunk.Records == 0:
				flush = nil
			case (flush == nil || timed != w.index) && wait > 0:
				flush, timed = time.After(wait), w.index
			}
		case <-flush:
			flush = nil
			if !w.begun && w.in.expected(w.index) == nil {
				if err := w.cut(false); err != nil {
					return err
				}
			}
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
}

// beginFile begins a file of the section.
func (w *spoolWriter) beginFile(lines format.Lines) {
	w.line = max(1, lines.First)
	w.seen += lines.Skipped
	if c := w.chunk; c != nil {
		c.Files = append(c.Files, chunk.FileStart{Line: c.Line + c.lines, Name: w.name, First: w.line})
	}
}

// endFile ends a file. If another may follow, its last line ends here too.
func (w *spoolWriter) endFile() error {
	if len(w.in.Files) > 1 && w.begun {
		return w.copyLines(newline)
	}
	return spoolFault(w.endLine(false))
}

// full reports whether the limit is reached. The rest of the stream is not read. After the last
// record of a counted section, its end is: a checksum may be wrong.
func (w *spoolWriter) full() bool {
	limit := w.in.limits.Limit
	return limit > 0 && !w.begun && w.seen-w.in.limits.Offset >= limit && (!w.in.source.counted || w.seen != w.in.Records)
}

// dropLine drops the beginning of a line that was too long for a block and whose end could not be
// read.
func (w *spoolWriter) dropLine() error {
	if !w.begun {
		return nil
	}
	w.begun = false
	if w.skipped {
		return nil
	}
	c := w.chunk
	c.Length = w.lineSum.Bytes
	return spoolFault(c.to.cut(w.lineSum))
}

// copyLines writes lines. The first may have begun earlier and the last may end later. It
// leaves out what exceeds the limit.
func (w *spoolWriter) copyLines(data []byte) error {
	from, at := 0, 0 // data[from:at] belongs to the current chunk and is not written yet
	for at < len(data) && !w.full() {
		if err := w.beginLine(); err != nil {
			return spoolFault(err)
		}
		line, _, ended := bytes.Cut(data[at:], newline)
		at += len(line)
		if ended {
			at++
		}
		w.blank = w.blank && isBlankLine(line)
		if w.skipped {
			from = at
		}
		if !ended {
			break
		}
		if err := w.endLine(true); err != nil {
			return spoolFault(err)
		}
		if w.skipped || w.chunk.was == nil && !w.ends(w.chunk.Length+int64(at-from)) {
			continue
		}
		if err := w.chunk.write(data[from:at]); err != nil {
			return spoolFault(err)
		}
		from = at
		ends, err := w.mustCut()
		if err == nil && ends {
			err = w.cut(false)
		}
		if err != nil {
			return err
		}
	}
	if from == at {
		return nil
	}
	return spoolFault(w.chunk.write(data[from:at]))
}

// ends reports whether the chunk ends at this length, because of its content.
func (w *spoolWriter) ends(length int64) bool {
	length += w.chunk.blobs.sum().Bytes
	options := w.in.source.options
	enough := w.in.Once || length >= options.LeastBytes
	return enough && w.chunk.Records%options.ChunkRecords == 0 || length >= spoolBytes || len(w.chunk.Files) >= maxChunkFiles
}

// maxChunkFiles is how many files a chunk may continue with: workers get a list of them.
const maxChunkFiles = 1000

// beginLine begins a chunk if the line is the first of one.
func (w *spoolWriter) beginLine() (err error) {
	if w.begun {
		return nil
	}
	w.begun, w.blank = true, true
	if w.skipped = w.seen < w.in.limits.Offset; w.skipped {
		return nil
	}
	if w.chunk == nil {
		err = w.beginChunk()
	}
	w.lineSum = w.chunk.to.Sum
	return err
}

// beginChunk begins a chunk with the current line. It gets no file if the log says that it is
// done.
func (w *spoolWriter) beginChunk() error {
	c := &spooledChunk{Chunk: chunk.Chunk{First: w.seen, Line: w.line, Source: w.name, Rows: w.rows()}, was: w.in.expected(w.index)}
	w.chunk = c
	if c.Blobs = w.in.source.options.Blobs; c.Blobs > 0 {
		c.blobs = &BlobWriter{each: c.Blobs}
	}
	if c.done = c.was != nil && w.in.holds(*c.was); c.done {
		return nil
	}
	c.File = w.in.spoolPath(w.index)
	if err := c.to.Create(c.File); err != nil {
		return err
	}
	return c.blobs.open(c.BlobFile())
}

// endLine counts the line, if one was begun, and writes its blobs. fed: it ends with a line feed.
func (w *spoolWriter) endLine(fed bool) error {
	if !w.begun {
		return nil
	}
	w.begun = false
	w.line++
	if !w.blank {
		w.seen++
	}
	var blobs []format.Blob
	if w.blobs != nil && !w.blank {
		blobs = w.blobs()
	}
	if w.skipped {
		return nil
	}
	w.chunk.ended = fed
	w.chunk.lines++
	if w.blank {
		return nil
	}
	w.chunk.Records++
	return w.chunk.blobs.Add(blobs)
}

// write adds bytes to a chunk. It compares those of the logged chunk when the last of them
// arrive.
func (c *spooledChunk) write(data []byte) error {
	if c.was != nil {
		if left := c.was.Bytes - c.Length; left > 0 && left <= int64(len(data)) {
			sum := c.to.Sum
			_, _ = sum.Write(data[:left])
			c.prefix = sum.CRC == c.was.CRC && c.blobs.sum() == c.was.Blobs
		}
	}
	c.Length += int64(len(data))
	_, err := c.to.Write(data)
	return err
}

// close closes the file of a chunk, after making it durable.
func (c *spooledChunk) close(durable bool) error {
	return cmp.Or(c.to.Close(durable), c.blobs.Close(durable))
}

// finish passes on the last chunk, at the end of the section.
func (w *spoolWriter) finish() error {
	if err := w.cut(true); err != nil {
		return err
	}
	if was := w.in.expected(w.index); was != nil && !w.full() {
		return w.in.differs(w.name, *was, "it has fewer records")
	}
	return nil
}

// cut closes the spool file and passes it on as a chunk. last: the section ends with it.
func (w *spoolWriter) cut(last bool) error {
	w.found.Seen = w.seen
	c := w.chunk
	if c == nil {
		return nil
	}
	w.chunk = nil
	if err := c.close(w.in.source.options.Keep && w.in.Once); err != nil {
		return spoolFault(err)
	}
	blank := c.lines - c.Records
	w.found.Blank += blank
	logged := loggedChunk{At: c.First, Records: c.Records, Line: c.Line, Rows: c.Rows, FileSum: c.to.Sum, Blobs: c.blobs.sum(), Last: last, Open: last && !c.ended}
	if c.Records > 0 {
		if err := w.compare(c, &logged); err != nil {
			return err
		}
		w.index++
		w.found.Records += c.Records
	} else if c.File != "" {
		_ = os.Remove(c.File) // otherwise Release or Close removes it
		_ = os.Remove(c.BlobFile())
	}
	return w.in.emit(w.ctx, c.Chunk, logged, blank)
}

// discard closes a file that an error left open.
func (w *spoolWriter) discard() {
	if w.chunk != nil {
		_ = w.chunk.close(false)
	}
}

// mustCut reports whether the chunk ends after the line that was just written: where the
// log says, or else because of its content.
//
// If an earlier run was killed together with the writer of its stream, the stream seemed to
// end. Its last chunk then grows, unless it is done.
func (w *spoolWriter) mustCut() (bool, error) {
	c := w.chunk
	was := c.was
	if was == nil || c.Records == 0 { // blank lines only are no chunk
		return w.ends(c.Length), nil
	}
	switch {
	case c.Length < was.Bytes:
		return false, nil
	case !c.prefix:
		return false, w.in.differs(w.name, *was, "its content is different")
	case c.Length == was.Bytes && (!was.Last || c.done):
		return true, nil
	case was.Last && !c.done && w.index == len(w.in.before.chunks)-1:
		return w.ends(c.Length), nil
	}
	return false, w.in.differs(w.name, *was, "it continues where it ended before")
}

// compare compares a whole chunk with the log.
func (w *spoolWriter) compare(c *spooledChunk, now *loggedChunk) error {
	switch was := c.was; {
	case was == nil:
	case now.same(*was):
		now.Last, now.Open = was.Last, was.Open // what it says about the end is older, but may be all there is
	case c.prefix && was.Last && now.At == was.At && !c.done: // it has grown
	case now.Bytes < was.Bytes:
		return w.in.differs(w.name, *was, "it has fewer records")
	default:
		return w.in.differs(w.name, *was, "its content is different")
	}
	return nil
}
