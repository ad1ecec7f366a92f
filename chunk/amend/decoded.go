package amend

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/files"
)

// lengthOf returns the bytes of a part before encoding, which positions in failures.jsonl
// refer to.
func lengthOf(part commit.ManifestPart, format encode.Format) int64 {
	if format.Encodes() {
		return part.Unencoded
	}
	return part.Bytes
}

// heldLine is the size up to which a line is held in memory.
const heldLine = 64 << 20

// decodedFile reads lines of an encoded file, in order.
type decodedFile struct {
	in     io.ReadCloser
	at     int64 // before encoding
	buffer []byte
	long   *os.File // an unnamed copy of a line that is too long to be held
}

func decodeFile(file *os.File, format encode.Format) (*decodedFile, error) {
	in, err := format.Codec.Decode(bufio.NewReaderSize(file, 1<<20))
	if err != nil {
		return nil, err
	}
	return &decodedFile{in: in}, nil
}

// read returns size bytes at an offset that is not before the end of the last one. They are
// valid until the next call.
func (d *decodedFile) read(at, size int64) (files.Mapping, error) {
	if at < d.at || size < 1 {
		return files.Mapping{}, fmt.Errorf("no record is at byte %d", at)
	}
	if _, err := io.CopyN(io.Discard, d.in, at-d.at); err != nil {
		return files.Mapping{}, err
	}
	d.at = at + size
	if size > heldLine {
		return d.readLong(size)
	}
	if int64(cap(d.buffer)) < size {
		d.buffer = make([]byte, size)
	}
	_, err := io.ReadFull(d.in, d.buffer[:size])
	return files.Mapping{Data: d.buffer[:size]}, err
}

func (d *decodedFile) readLong(size int64) (_ files.Mapping, err error) {
	if d.long == nil {
		if d.long, err = os.CreateTemp("", "gpurun-line-*"); err != nil {
			return files.Mapping{}, err
		}
		_ = os.Remove(d.long.Name())
	}
	if err := d.long.Truncate(0); err != nil {
		return files.Mapping{}, err
	}
	if _, err := io.CopyN(io.NewOffsetWriter(d.long, 0), d.in, size); err != nil {
		return files.Mapping{}, err
	}
	return files.Map(d.long, 0, size)
}

func (d *decodedFile) close() {
	if d == nil {
		return
	}
	d.in.Close()
	if d.long != nil {
		d.long.Close()
	}
}
