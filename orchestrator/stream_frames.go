package orchestrator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/gpurun/gpurun/chunk/commit"
)

// frames reads the results of a streaming job; see commit.PartOptions.FrameFailures.
type frames struct {
	in    *bufio.Reader
	index int64
}

func newFrames(in io.Reader, first int64) *frames {
	return &frames{in: bufio.NewReaderSize(in, 256<<10), index: first}
}

// next returns the next result, io.EOF after the last. Its memory is its own.
func (f *frames) next() (Result, error) {
	size, err := f.size()
	if err != nil {
		return Result{}, err
	}
	r := Result{Index: f.index}
	f.index++
	if size != commit.FailedFrame {
		lines, err := f.bytes(size)
		r.Records = splitLines(lines)
		return r, err
	}
	encoded, err := f.sized()
	if err == nil {
		err = json.Unmarshal(encoded, &r.Failure)
	}
	if err != nil {
		return r, inFrame(err)
	}
	r.Failed, err = f.sized()
	if string(r.Failed) == notBlank {
		r.Failed, r.Failure.Message = nil, "the record is empty"
	}
	return r, inFrame(err)
}

// size reads the line that says how many bytes follow.
func (f *frames) size() (int64, error) {
	line, err := f.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return 0, io.EOF
	}
	if err != nil {
		return 0, inFrame(err)
	}
	size, err := strconv.ParseInt(string(line[:len(line)-1]), 10, 64)
	if err == nil && size < commit.FailedFrame {
		err = fmt.Errorf("a frame of %d bytes", size)
	}
	return size, err
}

// sized reads a size and that many bytes.
func (f *frames) sized() ([]byte, error) {
	size, err := f.size()
	if err == nil && size < 0 {
		err = errors.New("a failure within a failure")
	}
	if err != nil {
		return nil, err
	}
	return f.bytes(size)
}

func (f *frames) bytes(size int64) ([]byte, error) {
	data := make([]byte, size)
	_, err := io.ReadFull(f.in, data)
	return data, inFrame(err)
}

// inFrame keeps an end within a frame apart from the end of the results.
func inFrame(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// splitLines splits lines into records that share their memory.
func splitLines(lines []byte) (records []Record) {
	for line := range bytes.Lines(lines) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		records = append(records, Record(line[:len(line):len(line)]))
	}
	return records
}
