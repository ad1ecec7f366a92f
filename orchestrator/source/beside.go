package source

import (
	"bufio"
	"errors"
	"io"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
)

// Beside are the values of bytes that the records of a file of lines have in another file: those of
// failed records, which a retry computes again. The methods of nil do nothing.
type Beside struct {
	Names []string
	// Lines is the file of lines; the values are in its chunk.Chunk.BlobFile.
	Lines string
}

// Path is the file of the values.
func (b *Beside) Path() string { return chunk.Chunk{File: b.Lines}.BlobFile() }

func (b *Beside) names() []string {
	if b == nil {
		return nil
	}
	return b.Names
}

// add returns lines with the values.
func (b *Beside) add(lines format.Lines) format.Lines {
	if b == nil {
		return lines
	}
	l := &besideLines{
		lines: lines, in: bufio.NewReaderSize(lines, 1<<20),
		from: input.NewBlobs(chunk.Chunk{File: b.Lines, Blobs: len(b.Names)}, len(b.Names)),
	}
	l.Next = l.next
	lines.ReadCloser, lines.Blobs = l, l.blobs.Next
	return lines
}

// besideLines reads a record's values with its line.
type besideLines struct {
	lines  io.Closer
	in     *bufio.Reader
	from   *input.Blobs
	record int64
	blobs  format.BlobQueue
	format.Blocks
}

func (l *besideLines) next() ([]byte, error) {
	line, err := l.in.ReadBytes('\n')
	if len(line) == 0 || err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	blobs, failed := l.from.Read(l.record)
	if failed != nil {
		return nil, failed
	}
	l.record++
	l.blobs.Add(blobs)
	return line, err
}

func (l *besideLines) Close() error { return errors.Join(l.lines.Close(), l.from.Close()) }
