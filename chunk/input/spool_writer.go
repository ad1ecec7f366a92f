package input

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// spoolWriter fills one spool file after another.
type spoolWriter struct {
	spool *spool
	ctx   context.Context

	number int
	file   *os.File
	out    *bufio.Writer

	held    []byte // the beginning of a line
	inLine  bool   // the beginning of the line is already written
	blank   bool   // the line is white space so far
	skip    bool   // the line is before Limits.Offset
	seen    int64  // records, including skipped ones
	line    int64  // number of the next line
	current chunk.Chunk
	lines   int64 // in the current chunk
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
				err := w.takeHeld()
				w.endLine()
				return err
			}
			if fault.As(block.err) != nil { // the reader's fault is more precise
				return block.err
			}
			if block.err != nil {
				return fault.New(fault.Storage, "read input: %w", block.err)
			}
			if w.done() {
				return nil
			}
			in.empty <- block.data
			switch {
			case w.current.Records == 0:
				flush = nil
			case (flush == nil || timed != w.number) && w.spool.options.Flush > 0:
				flush, timed = time.After(w.spool.options.Flush), w.number
			}
		case <-flush:
			flush = nil
			if !w.inLine {
				if err := w.cut(); err != nil {
					return err
				}
			}
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
}

// done reports whether the limit is reached. The rest of the stream is not read.
func (w *spoolWriter) done() bool {
	limit := w.spool.options.Limit
	return limit > 0 && !w.inLine && w.seen-w.spool.options.Offset >= limit
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
	return w.takeLines(line)
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
		if w.skip {
			from = at
		}
		if !ended {
			break
		}
		w.endLine()
		if length := w.current.Length + int64(at-from); w.current.Records >= w.spool.options.ChunkRecords || length >= spoolBytes {
			if err := w.write(data[from:at]); err != nil {
				return spoolFault(err)
			}
			from = at
			if err := w.cut(); err != nil {
				return err
			}
		}
	}
	return spoolFault(w.write(data[from:at]))
}

func spoolFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "spool input: %w", err)
}

// beginLine opens a spool file if the line is the first of a chunk.
func (w *spoolWriter) beginLine() error {
	if w.inLine {
		return nil
	}
	w.inLine, w.blank = true, true
	w.skip = w.seen < w.spool.options.Offset
	if w.skip || w.file != nil {
		return nil
	}
	path := filepath.Join(w.spool.options.Dir, fmt.Sprintf("spool-%06d.jsonl", w.number))
	file, err := files.Create(path, files.PrivateMode)
	if err != nil {
		return err
	}
	w.number++
	w.file, w.out = file, bufio.NewWriterSize(file, 256<<10)
	w.current = chunk.Chunk{File: path, First: w.seen, Line: w.line}
	w.lines = 0
	return nil
}

// endLine counts the line, if one was begun.
func (w *spoolWriter) endLine() {
	if !w.inLine {
		return
	}
	w.inLine = false
	w.line++
	if !w.blank {
		w.seen++
	}
	if w.skip {
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
	w.current.Length += int64(len(data))
	_, err := w.out.Write(data)
	return err
}

// cut closes the spool file and passes it on as a chunk.
func (w *spoolWriter) cut() error {
	if w.file == nil {
		return nil
	}
	if err := cmp.Or(w.out.Flush(), w.file.Close()); err != nil {
		return spoolFault(err)
	}
	c := w.current
	w.file, w.current = nil, chunk.Chunk{}
	w.spool.mu.Lock()
	w.spool.records += c.Records
	w.spool.unreleased[c.File] = c.Records
	w.spool.blank += w.lines - c.Records
	w.spool.mu.Unlock()
	if c.Records == 0 {
		_ = os.Remove(c.File) // otherwise Release or Close removes it
		return nil
	}
	select {
	case w.spool.chunks <- cut{chunk: c}:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// discard closes a file that an error left open.
func (w *spoolWriter) discard() {
	if w.file != nil {
		w.file.Close()
	}
}
