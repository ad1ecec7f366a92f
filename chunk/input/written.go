package input

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/files"
)

// WrittenFile is a file that is written from start to end. Before it is created, and after it is closed,
// bytes are only summed.
type WrittenFile struct {
	Sum  chunk.FileSum
	file *os.File
	out  *bufio.Writer
}

// writeBuffers are used again: the system must find and clear the memory of a new one, which is expensive
// for a small file.
var writeBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 256<<10) }}

// Create creates the file.
func (w *WrittenFile) Create(path string) (err error) {
	if w.file, err = files.Create(path, files.PrivateMode); err == nil {
		w.out = writeBuffers.Get().(*bufio.Writer)
		w.out.Reset(w.file)
	}
	return err
}

// Created reports whether there is an open file.
func (w *WrittenFile) Created() bool { return w.out != nil }

func (w *WrittenFile) Write(data []byte) (int, error) {
	_, _ = w.Sum.Write(data)
	if w.out == nil {
		return len(data), nil
	}
	return w.out.Write(data)
}

// cut drops what was written after a beginning, whose sum this is.
func (w *WrittenFile) cut(to chunk.FileSum) error {
	w.Sum = to
	if w.out == nil {
		return nil
	}
	if err := cmp.Or(w.out.Flush(), w.file.Truncate(to.Bytes)); err != nil {
		return err
	}
	_, err := w.file.Seek(to.Bytes, io.SeekStart)
	return err
}

// Close closes the file, after making it durable.
func (w *WrittenFile) Close(durable bool) error {
	if w.out == nil {
		return nil
	}
	err := w.out.Flush()
	if err == nil && durable {
		err = w.file.Sync()
	}
	w.out.Reset(nil)
	writeBuffers.Put(w.out)
	w.out = nil
	return cmp.Or(err, w.file.Close())
}
