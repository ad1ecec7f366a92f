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
		for line := range bytes.Lines(data) { // they share their memory
			line = bytes.TrimSuffix(line, []byte("\n"))
			r.Records = append(r.Records, Record(line[:len(line):len(line)]))
		}
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
