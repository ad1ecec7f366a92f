package source

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// Each passes the lines of the records that the limits select to yield, one file after the
// other, until it returns false. No line is much longer than most. A damaged file ends where the
// damage begins, if such files are skipped.
func (i *Inputs) Each(ctx context.Context, limits input.Limits, most int64, yield func(record.Line) bool) error {
	number, more := int64(0), true
	for k, file := range i.Files {
		err := file.Each(ctx, format.Options{Threads: 1}, most, func(line record.Line) bool {
			if number++; number > limits.Offset {
				line.File = k
				more = yield(line) && (limits.Limit == 0 || number < limits.Offset+limits.Limit)
			}
			return more
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !i.options.SkipBad:
			return fault.BadInput.Of(fault.Usage, "read input %s: %w", file.Name, err)
		case !more:
			return nil
		}
	}
	return nil
}

// Each passes the lines of a file to yield, until it returns false. No line is much longer than
// most.
func (f File) Each(ctx context.Context, options format.Options, most int64, yield func(record.Line) bool) error {
	lines, err := f.Lines(ctx, options)
	if err != nil {
		return err
	}
	defer lines.Close()
	return EachLine(contextReader{ctx, lines}, most, func(line record.Line) bool {
		line.Rows = lines.CountsRows()
		return yield(line)
	})
}

// eachBuffer is the size up to which a line is read at once.
const eachBuffer = 1 << 20

// EachLine calls yield with each line that is not blank, until it returns false. What precedes an
// error is not a line.
func EachLine(from io.Reader, most int64, yield func(record.Line) bool) error {
	in := bufio.NewReaderSize(from, eachBuffer)
	for number := int64(1); ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long := bytes.Clone(line)
			for errors.Is(err, bufio.ErrBufferFull) {
				if line, err = in.ReadSlice('\n'); int64(len(long)) <= most || isBlank(long) {
					long = append(long, line...)
				}
			}
			line = long
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		if !isBlank(line) && !yield(record.Line{Line: number, Data: line}) || ended {
			return nil
		}
	}
}

func isBlank(line []byte) bool { return len(bytes.TrimLeft(line, " \t\r\n")) == 0 }

const (
	// sampleBytes is how much of a file is looked at.
	sampleBytes = 64 << 20
	// sampleWait is how long a stream may take to deliver the sample.
	sampleWait = 10 * time.Second
)

// Sample passes the first lines of the input to yield, until it returns false. What is read of a
// stream is kept for Open. A damaged file is reported when it is read.
func (i *Inputs) Sample(ctx context.Context, options format.Options, yield func(record.Line) bool) error {
	for k := range i.Files {
		file := &i.Files[k]
		lines, err := file.Lines(ctx, options)
		if err != nil {
			continue
		}
		sampled, more := &sampledLines{from: lines.ReadCloser, blobsFrom: lines.Blobs}, true
		_ = EachLine(sampling{sampled, ctx, time.After(sampleWait)}, math.MaxInt64, func(line record.Line) bool {
			more = yield(line)
			return more && sampled.takeBlobs() < sampleBytes
		})
		if file.stream != nil {
			lines.ReadCloser, lines.Blobs, file.sampled = sampled, sampled.blobs, &lines
		} else {
			sampled.Close()
		}
		switch {
		case ctx.Err() != nil:
			return fault.Interrupted.New("stopped before anything was started")
		case !more:
			return nil
		}
	}
	return nil
}

// sampledLines are lines whose beginning is looked at before they are read.
type sampledLines struct {
	from    io.ReadCloser
	head    []byte     // read and not yet returned
	err     error      // after head
	pending chan block // what is being read after it, if not nil

	blobsFrom func() []format.Blob // nil if there are none
	taken     [][]format.Blob      // of the lines that were looked at
	takenSize int
}

// takeBlobs takes the values that a line of the sample has beside it, and returns the size of all that
// were taken.
func (l *sampledLines) takeBlobs() int {
	if l.blobsFrom != nil {
		blobs := l.blobsFrom()
		for _, b := range blobs {
			l.takenSize += len(b.Data)
		}
		l.taken = append(l.taken, blobs)
	}
	return l.takenSize
}

// blobs returns the values of the next line.
func (l *sampledLines) blobs() (next []format.Blob) {
	switch {
	case len(l.taken) > 0:
		next, l.taken = l.taken[0], l.taken[1:]
	case l.blobsFrom != nil:
		next = l.blobsFrom()
	}
	return next
}

// block is some bytes, or their end.
type block struct {
	data []byte
	err  error
}

// sampling reads the beginning. A stream that pauses is not waited for.
type sampling struct {
	*sampledLines
	ctx  context.Context
	wait <-chan time.Time
}

// errSampled ends a sample before its lines end.
var errSampled = errors.New("the sample is large enough")

func (s sampling) Read(p []byte) (int, error) {
	if s.err != nil || len(s.head) >= sampleBytes {
		return 0, cmp.Or(s.err, errSampled)
	}
	s.pending = make(chan block, 1)
	go func(to chan<- block) {
		data := make([]byte, len(p))
		n, err := s.from.Read(data)
		to <- block{data[:n], err}
	}(s.pending)
	select {
	case b := <-s.pending:
		s.pending = nil
		s.head, s.err = append(s.head, b.data...), b.err
		return copy(p, b.data), b.err
	case <-s.wait:
	case <-s.ctx.Done():
	}
	return 0, errSampled
}

// Read reads all lines, those in the sample first.
func (l *sampledLines) Read(p []byte) (int, error) {
	for len(l.head) == 0 && l.pending != nil {
		b := <-l.pending
		l.pending, l.head, l.err = nil, b.data, b.err
	}
	switch {
	case len(l.head) > 0:
		n := copy(p, l.head)
		if l.head = l.head[n:]; len(l.head) == 0 {
			l.head = nil
		}
		return n, nil
	case l.err != nil:
		return 0, l.err
	}
	return l.from.Read(p)
}

// Close closes the lines, which must not happen during a read.
func (l *sampledLines) Close() error {
	if l.pending == nil {
		return l.from.Close()
	}
	go func(pending <-chan block) {
		<-pending
		l.from.Close()
	}(l.pending)
	return nil
}

// EachBlobs calls yield with the values of bytes of each record, one file after the other, until it
// returns false.
func (i *Inputs) EachBlobs(ctx context.Context, options format.Options, yield func([]format.Blob) bool) error {
	for _, file := range i.Files {
		lines, err := file.Lines(ctx, options)
		more := true
		if err == nil {
			err = EachLine(contextReader{ctx, lines}, 0, func(record.Line) bool {
				var blobs []format.Blob
				if lines.Blobs != nil {
					blobs = lines.Blobs()
				}
				more = yield(blobs)
				return more
			})
			lines.Close()
		}
		if err != nil && !i.options.SkipBad || !more {
			return err
		}
	}
	return nil
}
