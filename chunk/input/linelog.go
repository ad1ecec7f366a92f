package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// lineLog is an append-only file of checked lines. It is not synced, so lines may be missing
// at its end, and the last one may be incomplete. What follows a damaged line is dropped.
type lineLog[T any] struct {
	file *os.File
	what string // for messages
}

// openLines opens or creates a log and passes its values to take, up to the first damaged
// line or the first value that take refuses.
func openLines[T any](path, what string, take func(T) error) (*lineLog[T], error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, files.PrivateMode)
	if err != nil {
		return nil, fault.New(fault.Storage, "open %s: %w", what, err)
	}
	data, err := io.ReadAll(file)
	if err == nil {
		good := eachLine(data, take)
		if err = file.Truncate(good); err == nil {
			_, err = file.Seek(good, io.SeekStart)
		}
	}
	if err != nil {
		file.Close()
		return nil, fault.New(fault.Storage, "read %s: %w", what, err)
	}
	return &lineLog[T]{file, what}, nil
}

// readLines passes the values of a log that no process writes to take. A missing log has
// none.
func readLines[T any](path, what string, take func(T) error) error {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fault.New(fault.Storage, "read %s: %w", what, err)
	}
	eachLine(data, take)
	return nil
}

// eachLine returns the length of the lines that take has accepted.
func eachLine[T any](data []byte, take func(T) error) (good int64) {
	for {
		line, rest, whole := bytes.Cut(data, newline)
		payload, err := chunk.ParseLine(line)
		var value T
		if !whole || err != nil || json.Unmarshal(payload, &value) != nil || take(value) != nil {
			return good
		}
		good += int64(len(line)) + 1
		data = rest
	}
}

// add appends values, one per line.
func (l *lineLog[T]) add(values ...T) (err error) {
	var lines []byte
	for _, value := range values {
		if lines, err = chunk.AppendLine(lines, value); err != nil {
			return err
		}
	}
	if _, err := l.file.Write(lines); err != nil {
		return fault.New(fault.Storage, "write %s: %w", l.what, err)
	}
	return nil
}

// close closes the file. Nothing is open if l is nil.
func (l *lineLog[T]) close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
