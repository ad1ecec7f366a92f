package input

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// spoolWriters holds buffers of spool files.
var spoolWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 256<<10) }}

// spoolWriter fills one spool file after another with the lines of a section.
type spoolWriter struct {
	in  *sectionReader
	ctx context.Context

	name string      // of the file
	rows func() bool // its lines are rows

	index int // of the chunk
	begun bool
	file  *os.File // nil for a chunk that is only compared
	out   *bufio.Writer

	lineAt  int64         // where in the chunk the line begins, if it is too long for a block,
	lineSum chunk.FileSum // and the checksum of what precedes it
	inLine  bool          // the beginning of the line is already written
	blank   bool          // the line is white space so far
	skipped bool          // the line is before Limits.Offset
	seen    int64         // records, including skipped ones
	line    int64         // number of the next line in its file
	current chunk.Chunk
	sum     chunk.FileSum // of the current chunk
	lines   int64         // in the current chunk
	ended   bool          // the last line of the current chunk has a line feed
	prefix  bool          // the current chunk begins with the bytes of the logged one
	end     sectionEnd
}

// readLines copies the section's lines to spool files.
func (r *sectionReader) readLines(ctx context.Context) (sectionEnd, error) {
	w := &spoolWriter{in: r, ctx: ctx}
	defer w.discard()
	for _, file := range r.files() {
		if err := w.copyFile(file); err != nil {
			return w.end, err
		}
		if w.done() {
			break
		}
	}
	return w.end, w.finish()
}

// copyFile copies the lines of a file, or those before its damage.
func (w *spoolWriter) copyFile(file SectionFile) error {
	w.name = file.Name
	lines, err := file.Open(w.ctx)
	w.rows = lines.CountsRows
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
	if w.in.options.SkipBad && !w.in.Once {
		w.end.Bad = err.Error()
		if err := w.logDamage(file.Number, false); err != nil {
			return err
		}
		if w.in.options.Skipped != nil {
			w.in.options.Skipped(Damage{Name: file.Name, Line: line, Rows: w.rows(), Err: err})
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
	return w.in.options.Log.add(loggedChunk{Section: w.in.number, Damaged: &file, Stops: stops})
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
			if err := w.takeLines(block.data); err != nil {
				return err
			}
			if errors.Is(block.err, io.EOF) {
				return w.endFile()
			}
			if block.err != nil {
				return &readError{block.err}
			}
			if w.done() {
				return nil
			}
			in.empty <- block.data
			switch {
			case w.current.Records == 0:
				flush = nil
			case (flush == nil || timed != w.index) && w.in.options.Flush > 0:
				flush, timed = time.After(w.in.options.Flush), w.index
			}
		case <-flush:
			flush = nil
			if _, expected := w.expected(); !w.inLine && !expected {
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
	if w.begun {
		w.current.Files = append(w.current.Files, chunk.FileStart{Line: w.current.Line + w.lines, Name: w.name, First: w.line})
	}
}

// endFile ends a file. If another may follow, its last line ends here too.
func (w *spoolWriter) endFile() error {
	if len(w.in.Files) > 0 && w.inLine {
		return w.takeLines(newline)
	}
	w.endLine(false)
	return nil
}

// done reports whether the limit is reached. The rest of the stream is not read. After the last
// record of a counted section, its end is: a checksum may be wrong.
func (w *spoolWriter) done() bool {
	limit := w.in.limits.Limit
	return limit > 0 && !w.inLine && w.seen-w.in.limits.Offset >= limit && (w.in.source.counted == nil || w.seen != w.in.Records)
}

// dropLine drops the beginning of a line that was too long for a block and whose end could not be
// read.
func (w *spoolWriter) dropLine() error {
	if !w.inLine {
		return nil
	}
	w.inLine = false
	if w.skipped {
		return nil
	}
	w.current.Length, w.sum = w.lineAt, w.lineSum
	if w.out == nil {
		return nil
	}
	if err := cmp.Or(w.out.Flush(), w.file.Truncate(w.lineAt)); err != nil {
		return spoolFault(err)
	}
	_, err := w.file.Seek(w.lineAt, io.SeekStart)
	return spoolFault(err)
}

// takeLines writes lines. The first may have begun earlier and the last may end later. It
// leaves out what exceeds the limit.
func (w *spoolWriter) takeLines(data []byte) error {
	from, at := 0, 0 // data[from:at] belongs to the current chunk and is not written yet
	for at < len(data) && !w.done() {
		if err := w.beginLine(); err != nil {
			return spoolFault(err)
		}
		line, _, ended := bytes.Cut(data[at:], newline)
		at += len(line)
		if ended {
			at++
		}
		w.blank = w.blank && len(bytes.Trim(line, " \t\r")) == 0
		if w.skipped {
			from = at
		}
		if !ended {
			break
		}
		w.endLine(true)
		if _, expected := w.expected(); !expected && !w.full(w.current.Length+int64(at-from)) {
			continue
		}
		if err := w.write(data[from:at]); err != nil {
			return spoolFault(err)
		}
		from = at
		full, err := w.mustCut()
		if err == nil && full {
			err = w.cut(false)
		}
		if err != nil {
			return err
		}
	}
	return spoolFault(w.write(data[from:at]))
}

// full reports whether a chunk of this length ends here, because of its content.
func (w *spoolWriter) full(length int64) bool {
	return w.current.Records >= w.in.options.ChunkRecords || length >= spoolBytes || len(w.current.Files) >= maxChunkFiles
}

// maxChunkFiles is how many files a chunk may continue with: workers get a list of them.
const maxChunkFiles = 1000

// beginLine begins a chunk if the line is the first of one.
func (w *spoolWriter) beginLine() error {
	if w.inLine {
		return nil
	}
	w.inLine, w.blank = true, true
	w.skipped = w.seen < w.in.limits.Offset
	var err error
	if !w.skipped && !w.begun {
		err = w.beginChunk()
	}
	w.lineAt, w.lineSum = w.current.Length, w.sum
	return err
}

// beginChunk begins a chunk with the current line. It gets no file if the log says that it is
// done.
func (w *spoolWriter) beginChunk() (err error) {
	w.begun, w.lines, w.sum, w.prefix = true, 0, chunk.FileSum{}, false
	w.current = chunk.Chunk{First: w.seen, Line: w.line, Source: w.name, Rows: w.rows()}
	if logged, ok := w.expected(); ok && w.in.options.Earlier.Holds(logged.First, logged.Records) {
		return nil
	}
	w.current.File = w.in.spoolPath(w.index)
	if w.file, err = files.Create(w.current.File, files.PrivateMode); err != nil {
		return err
	}
	w.out = spoolWriters.Get().(*bufio.Writer)
	w.out.Reset(w.file)
	return nil
}

// endLine counts the line, if one was begun. fed: it ends with a line feed.
func (w *spoolWriter) endLine(fed bool) {
	if !w.inLine {
		return
	}
	w.inLine, w.ended = false, fed
	w.line++
	if !w.blank {
		w.seen++
	}
	if w.skipped {
		return
	}
	w.lines++
	if !w.blank {
		w.current.Records++
	}
}

func (w *spoolWriter) write(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	w.compare(data)
	_, _ = w.sum.Write(data)
	w.current.Length += int64(len(data))
	if w.out == nil {
		return nil
	}
	_, err := w.out.Write(data)
	return err
}

// finish passes on the last chunk, at the end of the section.
func (w *spoolWriter) finish() error {
	if err := w.cut(true); err != nil {
		return err
	}
	if _, more := w.expected(); more && !w.done() {
		return w.differs("it has fewer records")
	}
	return nil
}

// cut closes the spool file and passes it on as a chunk. last: the section ends with it.
func (w *spoolWriter) cut(last bool) error {
	w.end.Seen = w.seen
	if !w.begun {
		return nil
	}
	if w.out != nil {
		err := w.out.Flush()
		if err == nil && w.in.options.Keep && w.in.Once {
			err = w.file.Sync()
		}
		if err := cmp.Or(err, w.file.Close()); err != nil {
			return spoolFault(err)
		}
		w.out.Reset(nil)
		spoolWriters.Put(w.out)
	}
	c, lines := w.current, w.lines
	w.begun, w.file, w.out, w.current = false, nil, nil, chunk.Chunk{}
	w.end.Blank += lines - c.Records
	if c.Records == 0 {
		if c.File != "" {
			_ = os.Remove(c.File) // otherwise Release or Close removes it
		}
		w.in.addBlank(lines)
		return nil
	}
	logged := loggedChunk{At: c.First, Records: c.Records, Line: c.Line, Rows: c.Rows, FileSum: w.sum, Last: last, Open: last && !w.ended}
	if err := w.compareAll(&logged); err != nil {
		return err
	}
	w.index++
	w.end.Records += c.Records
	return w.in.emit(w.ctx, c, logged, lines-c.Records)
}

// discard closes a file that an error left open.
func (w *spoolWriter) discard() {
	if w.file != nil {
		w.file.Close()
	}
}

// A section that is read again is split where it was split before, and what has been
// computed is compared with the log's checksums.

// expected returns what the log says about the current chunk.
func (w *spoolWriter) expected() (loggedChunk, bool) {
	if w.index >= len(w.in.before.chunks) {
		return loggedChunk{}, false
	}
	return w.in.before.chunks[w.index], true
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
	done := w.in.options.Earlier.Holds(logged.First, logged.Records)
	switch {
	case length < logged.Bytes:
		return false, nil
	case !w.prefix:
		return false, w.differs("its content is different")
	case length == logged.Bytes && (!logged.Last || done):
		return true, nil
	case logged.Last && !done && w.index == len(w.in.before.chunks)-1:
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
	if w.prefix && was.Last && now.At == was.At && !w.in.options.Earlier.Holds(was.First, was.Records) {
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
	return w.in.differs(w.name, logged, how)
}
