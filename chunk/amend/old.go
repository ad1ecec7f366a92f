package amend

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/fault"
)

// oldFile reads the lines of a file of the old output from its start, and sums the file's
// bytes.
type oldFile struct {
	file  *os.File
	bytes io.Reader     // of the file, summed
	lines io.Reader     // after decoding
	sum   chunk.FileSum // of the bytes read
	err   error         // it cannot be read or decoded
	count int64         // lines read
}

func openOld(path string, format encode.Format) (*oldFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Usage, "open output: %w", err)
	}
	o := &oldFile{file: file}
	o.bytes = bufio.NewReaderSize(io.TeeReader(file, &o.sum), 1<<20)
	o.lines = o.bytes
	if format.Encodes() {
		lines, err := format.Codec.Decode(o.bytes)
		if err != nil {
			file.Close()
			return nil, fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", path, err)
		}
		o.lines = lines
	}
	return o, nil
}

// Read reads lines.
func (o *oldFile) Read(p []byte) (int, error) {
	n, err := o.lines.Read(p)
	o.count += int64(bytes.Count(p[:n], []byte("\n")))
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	return n, err
}

// drain reads the rest of the file, so that its sum is that of the whole file.
func (o *oldFile) drain() error {
	_, err := io.Copy(io.Discard, o.bytes)
	return err
}

func (o *oldFile) close() {
	if o == nil {
		return
	}
	if lines, ok := o.lines.(io.Closer); ok {
		lines.Close()
	}
	o.file.Close()
}
