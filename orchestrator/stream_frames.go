package orchestrator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/gpurun/gpurun/chunk/commit"
)

// frames reads the results of a streaming job; see chunk.StoreFrames.
type frames struct {
	in    *bufio.Reader
	index int64
}

func newFrames(in io.Reader, first int64) *frames {
	return &frames{in: bufio.NewReaderSize(in, 256<<10), index: first}
}

// next returns the next result, io.EOF after the last. Its memory is its own.
func (f *frames) next() (Result, error) {
	size, more, failed, err := commit.NextFrame(f.in)
	if err != nil {
		return Result{}, err
	}
	r := Result{Index: f.index}
	f.index++
	data := make([]byte, size+more)
	if _, err = io.ReadFull(f.in, data); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil || !failed {
		r.Records = splitLines(data)
		return r, err
	}
	if r.Failed = data[size:]; string(r.Failed) == notBlank {
		r.Failed = nil
	}
	if err = json.Unmarshal(data[:size], &r.Failure); err == nil && r.Failed == nil {
		r.Failure.Message = "the record is empty"
	}
	return r, err
}

// splitLines splits lines into records that share their memory.
func splitLines(lines []byte) (records []Record) {
	for line := range bytes.Lines(lines) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		records = append(records, Record(line[:len(line):len(line)]))
	}
	return records
}
