package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

const (
	// sampleBytes is how much of a file is looked at, and sampleRead how much is read at a time.
	sampleBytes = 64 << 20
	sampleRead  = 256 << 10
)

// sampleWait is how long a stream may take to deliver the sample.
const sampleWait = 10 * time.Second

// Sample passes the first lines of the input to look, until it wants no more. What is read of a
// stream is kept for Open. A damaged file is reported when it is read. look gets the lines of
// data, the last of which counts only if it is complete, and returns what it has not looked at.
func (i *Inputs) Sample(ctx context.Context, options format.Options, look func(data []byte, complete bool) (rest []byte, more bool)) error {
	for k := range i.Files {
		file := &i.Files[k]
		open := file.Lines
		if file.stream != nil {
			open = func(ctx context.Context, options format.Options) (format.Lines, error) {
				return i.openStream(*file, options)(ctx)
			}
		}
		lines, err := open(ctx, options)
		if err != nil {
			continue
		}
		sampled := &sampledLines{from: lines.ReadCloser}
		more, err := sampled.read(ctx, look)
		if file.stream != nil {
			lines.ReadCloser, file.sampled = sampled, &lines
		} else {
			sampled.Close()
		}
		if err != nil || !more {
			return err
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
}

// block is some bytes, or their end.
type block struct {
	data []byte
	err  error
}

// read reads lines until look has enough. A stream that pauses is not waited for.
func (l *sampledLines) read(ctx context.Context, look func([]byte, bool) ([]byte, bool)) (more bool, err error) {
	timer := time.NewTimer(sampleWait)
	defer timer.Stop()
	taken := 0
	more = true
	for more && l.err == nil && len(l.head) < sampleBytes {
		l.pending = make(chan block, 1)
		go func(to chan<- block) {
			data := make([]byte, sampleRead)
			n, err := l.from.Read(data)
			to <- block{data[:n], err}
		}(l.pending)
		select {
		case b := <-l.pending:
			l.pending = nil
			l.head, l.err = append(l.head, b.data...), b.err
			if taken == 0 && bytes.HasPrefix(l.head, []byte("\ufeff")) {
				taken = len("\ufeff")
			}
			var rest []byte
			rest, more = look(l.head[taken:], errors.Is(l.err, io.EOF))
			taken = len(l.head) - len(rest)
		case <-timer.C:
			return true, nil
		case <-ctx.Done():
			return false, fault.Interrupted.New("stopped before anything was started")
		}
	}
	return more, nil
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
