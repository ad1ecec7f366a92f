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
	"github.com/gpurun/gpurun/internal/files"
)

// longestHeld is how much of an unfinished line is kept in memory.
const longestHeld = 1 << 20

// spoolWriters holds buffers of spool files.
var spoolWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 256<<10) }}

// spoolWriter fills one spool file after another with the lines of a section.
type spoolWriter struct {
	*sectionReader
	ctx context.Context

	name string      // of the file
	rows func() bool // its lines are rows

	index int // of the chunk
	begun bool
	file  *os.File // nil for a chunk that is only compared
	out   *bufio.Writer

	held    []byte        // the beginning of a line
	lineAt  int64         // where in the chunk a line begins that is too long to be held,
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

func (w *spoolWriter) copy(in blocks) error {
	var flush <-chan time.Time
	timed := 0 // the chunk that flush belongs to
	for {
		select {
		case block, ok := <-in.filled:
			if !ok {
				return w.ctx.Err()
			}
			if err := w.take(block.data); err != nil {
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
			case (flush == nil || timed != w.index) && w.options.Flush > 0:
				flush, timed = time.After(w.options.Flush), w.index
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
	if len(w.Files) > 0 && (w.inLine || len(w.held) > 0) {
		return w.take(newline)
	}
	err := w.takeHeld()
	w.endLine(false)
	return err
}

// done reports whether the limit is reached. The rest of the stream is not read. After the last
// record of a counted section, its end is: a checksum may be wrong.
func (w *spoolWriter) done() bool {
	limit := w.limits.Limit
	return limit > 0 && !w.inLine && w.seen-w.limits.Offset >= limit && (w.counted == nil || w.seen != w.Section.Records)
}

// take writes complete lines and holds the rest until its line is complete or too long to
// hold: a stream may pause within a line.
func (w *spoolWriter) take(data []byte) error {
	if len(w.held) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			return w.hold(data)
		}
		line := append(w.held, data[:end]...)
		w.held, data = line[:0], data[end:]
		if err := w.takeLines(line); err != nil {
			return err
		}
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	if w.inLine && end == 0 {
		end = len(data)
	}
	if err := w.takeLines(data[:end]); err != nil {
		return err
	}
	return w.hold(data[end:])
}

func (w *spoolWriter) hold(data []byte) error {
	w.held = append(w.held, data...)
	if len(w.held) < longestHeld {
		return nil
	}
	return w.takeHeld()
}

func (w *spoolWriter) takeHeld() error {
	line := w.held
	w.held = nil
	if !w.inLine {
		w.lineAt, w.lineSum = w.current.Length, w.sum
		if !w.begun {
			w.lineSum = chunk.FileSum{}
		}
	}
	return w.takeLines(line)
}

// dropHeld drops the beginning of a line whose end could not be read, also if it was too long
// to be held.
func (w *spoolWriter) dropHeld() error {
	w.held = nil
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
	return w.current.Records >= w.options.ChunkRecords || length >= spoolBytes || len(w.current.Files) >= maxChunkFiles
}

// maxChunkFiles is how many files a chunk may continue with: workers get a list of them.
const maxChunkFiles = 1000

// beginLine begins a chunk if the line is the first of one.
func (w *spoolWriter) beginLine() error {
	if w.inLine {
		return nil
	}
	w.inLine, w.blank = true, true
	w.skipped = w.seen < w.limits.Offset
	if w.skipped || w.begun {
		return nil
	}
	w.begun, w.lines, w.sum, w.prefix = true, 0, chunk.FileSum{}, false
	w.current = chunk.Chunk{First: w.seen, Line: w.line, Source: w.name, Rows: w.rows()}
	if logged, ok := w.expected(); ok && w.options.Done(logged.First, logged.Records) {
		return nil
	}
	path := w.spoolPath(w.index)
	file, err := files.Create(path, files.PrivateMode)
	if err != nil {
		return err
	}
	w.file, w.out = file, spoolWriters.Get().(*bufio.Writer)
	w.out.Reset(file)
	w.current.File = path
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
		if err == nil && w.options.Keep && w.Once {
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
		w.addBlank(lines)
		return nil
	}
	logged := loggedChunk{At: c.First, Records: c.Records, Line: c.Line, Rows: c.Rows, FileSum: w.sum, Last: last, Open: last && !w.ended}
	if err := w.compareAll(&logged); err != nil {
		return err
	}
	w.index++
	w.end.Records += c.Records
	return w.emit(w.ctx, c, logged, lines)
}

// discard closes a file that an error left open.
func (w *spoolWriter) discard() {
	if w.file != nil {
		w.file.Close()
	}
}
