package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// eachBuffer is the size up to which a line is read at once.
const eachBuffer = 1 << 20

// Each passes the lines of the records that the limits select to yield, one file after the
// other, until it returns false. No line is much longer than most. A damaged file ends where the
// damage begins, if such files are skipped.
func (i *Inputs) Each(ctx context.Context, limits input.Limits, most int64, skipBad bool, yield func(record.Line) bool) error {
	number, more := int64(0), true
	for k, file := range i.Files {
		lines, err := file.Lines(ctx, format.Options{Threads: 1})
		if err != nil {
			return err
		}
		err = eachLine(contextReader{ctx, lines}, most, func(line int64, data []byte) bool {
			if number++; number > limits.Offset {
				more = yield(record.Line{File: k, Line: line, Data: data}) && (limits.Limit == 0 || number < limits.Offset+limits.Limit)
			}
			return more
		})
		lines.Close()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !skipBad:
			return fault.BadInput.Of(fault.Usage, "read input %s: %w", file.Name, err)
		case !more:
			return nil
		}
	}
	return nil
}

// eachLine calls yield with the number and the bytes of each line that is not blank.
func eachLine(from io.Reader, most int64, yield func(line int64, data []byte) bool) error {
	in := bufio.NewReaderSize(from, eachBuffer)
	for number := int64(1); ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long := bytes.Clone(line)
			for errors.Is(err, bufio.ErrBufferFull) {
				if line, err = in.ReadSlice('\n'); int64(len(long)) <= most {
					long = append(long, line...)
				}
			}
			line = long
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(line)) > 0 && !yield(number, line) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
